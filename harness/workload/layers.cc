#include "harness/workload/layers.h"

#include <cmath>

#include "fsdp/module/counting_allocator.h"
#include "fsdp/module/tensor_device.h"
#include "fsdp/module/torch.h"

namespace harness {

using fsdp::InitRule;
using fsdp::Tensors;

namespace {
Tensors single(at::Tensor t) {
  Tensors out;
  out.push_back(std::move(t));
  return out;
}
}  // namespace

Linear::Linear(fsdp::Count in, fsdp::Count out, bool bias)
    : Module("Linear"), weight_(&add_parameter("weight", {out, in}, InitRule::kUniform)) {
  if (bias) bias_ = &add_parameter("bias", {out}, InitRule::kZeros);
}
Linear::Linear(std::shared_ptr<fsdp::Parameter> weight)
    : Module("Linear"), weight_(&share_parameter("weight", std::move(weight))) {}
Tensors Linear::forward(Tensors inputs) {
  return single(fsdp::ops::linear(inputs[0], weight_->read(), bias_ != nullptr ? bias_->read() : at::Tensor()));
}

Conv1d::Conv1d(fsdp::Count in, fsdp::Count out) : Module("Conv1D") {
  add_parameter("weight", {in, out}, InitRule::kUniform);
  add_parameter("bias", {out}, InitRule::kZeros);
}
Tensors Conv1d::forward(Tensors inputs) {
  return single(fsdp::ops::linear(inputs[0], parameters()[0].second->read(), parameters()[1].second->read(), true));
}

Embedding::Embedding(std::shared_ptr<fsdp::Parameter> table) : Module("Embedding") {
  share_parameter("weight", std::move(table));
}
Embedding::Embedding(fsdp::Count rows, fsdp::Count dim) : Module("Embedding") {
  add_parameter("weight", {rows, dim}, InitRule::kUniform);
}
Tensors Embedding::forward(Tensors inputs) { return single(fsdp::ops::embedding(weight()->read(), inputs[0])); }

RmsNorm::RmsNorm(const std::string& type, fsdp::Count dim, double eps) : Module(type), eps_(eps) {
  add_parameter("weight", {dim}, InitRule::kOnes);
}
Tensors RmsNorm::forward(Tensors inputs) {
  return single(fsdp::ops::rms_norm(inputs[0], parameters()[0].second->read(), eps_));
}

LayerNorm::LayerNorm(fsdp::Count dim, double eps) : Module("LayerNorm"), eps_(eps) {
  add_parameter("weight", {dim}, InitRule::kOnes);
  add_parameter("bias", {dim}, InitRule::kZeros);
}
Tensors LayerNorm::forward(Tensors inputs) {
  return single(fsdp::ops::layer_norm(inputs[0], parameters()[0].second->read(), parameters()[1].second->read(), eps_));
}

at::Tensor residual(at::Tensor x, fsdp::Module& norm, fsdp::Module& part) {
  Tensors two = fsdp::ops::fork(x, 2);
  x.reset();
  return at::add(two[0], part(norm(std::move(two[1]))));
}

Tensors ModuleList::forward(Tensors inputs) {
  for (const auto& [name, child] : children()) inputs = (*child)(std::move(inputs));
  return inputs;
}

RotaryTables make_rotary_tables(std::int64_t steps, std::int64_t rotary, double theta, fsdp::Dtype dtype, bool meta) {
  const fsdp::CategoryScope scope(fsdp::MemoryCategory::kOther);
  const std::int64_t half = rotary / 2;
  const auto options = at::TensorOptions().dtype(at::kFloat).device(meta ? at::kMeta : at::kCPU);
  const RotaryTables t{at::empty({steps, half}, options), at::empty({steps, half}, options)};
  for (std::int64_t s = 0; s < steps && !meta; ++s) {
    for (std::int64_t j = 0; j < half; ++j) {
      const double angle = static_cast<double>(s) * std::pow(theta, -2.0 * static_cast<double>(j) / double(rotary));
      t.cos.mutable_data_ptr<float>()[s * half + j] = static_cast<float>(std::cos(angle));
      t.sin.mutable_data_ptr<float>()[s * half + j] = static_cast<float>(std::sin(angle));
    }
  }
  const at::ScalarType type = dtype == fsdp::Dtype::kBFloat16 ? at::kBFloat16 : at::kFloat;
  if (meta) return {t.cos.to(type), t.sin.to(type)};
  return {fsdp::on_tensor_device(t.cos.to(type)), fsdp::on_tensor_device(t.sin.to(type))};
}

}  // namespace harness
