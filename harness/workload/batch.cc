#include "harness/workload/batch.h"

#include <algorithm>

#include "fsdp/module/counting_allocator.h"
#include "fsdp/module/kernels.h"
#include "fsdp/module/torch.h"
#include "harness/workload/exported_model.h"
#include "harness/workload/graph_program.h"
#include "harness/workload/synthetic_data.h"

namespace harness {
namespace {

constexpr std::uint64_t kFeatureStream = 0x66656174ull, kInputStream = 0x696e707574ull;

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

// Rows of tokens start a sample; the rule of tokens serves every whole number. An input whose first dimension is not
// the batch is the same for all.
at::Tensor make_graph_input(const GraphInput& in, std::size_t number, std::uint64_t seed, std::int64_t first_sample,
                            std::int64_t batch) {
  const std::vector<std::int64_t>& sizes = in.tensor.sizes;
  const bool batched = !sizes.empty() && sizes[0] == batch;
  const std::int64_t rows = batched ? batch : 1;
  if (!batched) first_sample = 0;
  std::int64_t each = 1;
  for (const std::int64_t n : sizes) each *= n;
  each /= std::max<std::int64_t>(rows, 1);
  const bool tokens = in.role != GraphInput::Role::kValues;
  const std::uint64_t stream = tokens ? seed : seed + (number + 1) * kInputStream;
  const at::ScalarType type = torch_type_of(in.tensor.dtype);
  if (at::isFloatingType(type)) {
    at::Tensor t = at::empty({rows, each}, at::kFloat);
    if (t.numel() > 0) fill_features(stream, first_sample, t);
    return t.reshape(sizes).to(type);
  }
  const auto values = synthetic_tokens(stream, first_sample, rows, each, in.high - in.low);
  at::Tensor t = at::empty({rows, each}, at::kLong);
  auto* to = t.mutable_data_ptr<std::int64_t>();
  const std::int64_t shift = in.role == GraphInput::Role::kNextTokens ? 1 : 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < each; ++i)
      *to++ = in.low + values[static_cast<std::size_t>(r * (each + 1) + i + shift)];
  return t.reshape(sizes).to(type);
}

Batch make_graph_batch(const ModelSettings& m, std::uint64_t seed, std::int64_t first_sample, std::int64_t batch,
                       bool meta) {
  const auto model = exported_model(m.file, m.fingerprint);
  Batch b;
  for (std::size_t i = 0; i < model->inputs.size(); ++i) {
    const GraphInput& in = model->inputs[i];
    const auto options = at::TensorOptions().dtype(torch_type_of(in.tensor.dtype)).device(at::kMeta);
    b.graph.push_back(meta ? at::empty(in.tensor.sizes, options) : make_graph_input(in, i, seed, first_sample, batch));
  }
  return b;
}

}  // namespace

Batch make_batch(const ModelSettings& m, std::uint64_t seed, std::int64_t first_sample, std::int64_t batch, bool meta) {
  const fsdp::CategoryScope scope(fsdp::MemoryCategory::kOther);
  if (is(m, "graph")) return make_graph_batch(m, seed, first_sample, batch, meta);
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
