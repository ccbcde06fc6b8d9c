#include "harness/workload/batch.h"

#include "fsdp/module/counting_allocator.h"
#include "fsdp/module/kernels.h"
#include "fsdp/module/torch.h"
#include "harness/workload/synthetic_data.h"

namespace harness {
namespace {

constexpr std::uint64_t kFeatureStream = 0x66656174ull;

bool is(const ModelSettings& m, const char* family) { return m.family == family; }

// Uniform, by the rule of the weights: a stream of its own for each sample.
void fill_features(std::uint64_t seed, std::int64_t first_sample, const at::Tensor& features) {
  const std::int64_t each = features.numel() / features.size(0);
  auto* to = features.mutable_data_ptr<float>();
  for (std::int64_t s = 0; s < features.size(0); ++s, to += each) {
    fsdp::kernels::uniform_weights(seed ^ kFeatureStream, static_cast<std::uint64_t>(first_sample + s), 0, each, to);
    for (std::int64_t i = 0; i < each; ++i) to[i] *= 32.0f;
  }
}

}  // namespace

Batch make_batch(const ModelSettings& m, std::uint64_t seed, std::int64_t first_sample, std::int64_t batch, bool meta) {
  const fsdp::CategoryScope scope(fsdp::MemoryCategory::kOther);
  const bool mlp = is(m, "mlp"), classifier = is(m, "embedding-classifier");
  const auto ids = at::TensorOptions().dtype(at::kLong).device(meta ? at::kMeta : at::kCPU);
  Batch b;
  b.inputs = mlp ? at::empty({batch, m.seq, m.dim}, ids.dtype(at::kFloat)) : at::empty({batch, m.seq}, ids);
  b.targets = classifier ? at::empty({batch}, ids) : at::empty({batch, m.seq}, ids);
  if (meta) return b;
  const auto tokens = synthetic_tokens(seed, first_sample, batch, m.seq, mlp ? m.classes : m.vocab);
  auto* const targets = b.targets.mutable_data_ptr<std::int64_t>();
  if (mlp) fill_features(seed, first_sample, b.inputs);
  for (std::int64_t i = 0; i < batch; ++i) {
    const auto row = tokens.begin() + i * (m.seq + 1);
    if (!mlp) std::copy(row, row + m.seq, b.inputs.mutable_data_ptr<std::int64_t>() + i * m.seq);
    if (classifier)
      targets[i] = row[m.seq] % m.classes;
    else
      std::copy(row + 1, row + m.seq + 1, targets + i * m.seq);
  }
  return b;
}

}  // namespace harness
