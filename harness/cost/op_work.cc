#include "harness/cost/op_work.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace harness {
namespace {

using Work = OpWork (*)(const OpCall&);

// Kernels that an eager framework launches for what is one operator here; a decoder block has about 42 in forward.
constexpr int kNormKernels = 6, kRopeKernels = 5, kSwigluKernels = 2, kAttentionKernels = 4, kLossKernels = 6;

const TensorShape& input(const OpCall& c, std::size_t i) {
  static const TensorShape none;
  return i < c.inputs.size() ? c.inputs[i] : none;
}
double integer(const OpCall& c, std::size_t i, double otherwise) {
  return i < c.integers.size() ? static_cast<double>(c.integers[i]) : otherwise;
}
double all_bytes(const OpCall& c) {
  double bytes = 0;
  for (const TensorShape& t : c.inputs) bytes += t.bytes();
  for (const TensorShape& t : c.outputs) bytes += t.bytes();
  return bytes;
}
OpWork moving(OpKind kind, double bytes, int kernels) { return {kind, false, {{0, bytes}}, kernels}; }

OpWork linear(const OpCall& c) {
  const TensorShape &x = input(c, 0), &w = input(c, 1);
  const double k = static_cast<double>(x.size(-1)), n = k == 0 ? 0 : static_cast<double>(w.numel()) / k;
  const double m = k == 0 ? 0 : static_cast<double>(x.numel()) / k;
  return {OpKind::kGemm, x.element_bytes == 2, {gemm_part(1, m, n, k, x.element_bytes)}, 1};
}
OpWork linear_backward(const OpCall& c) {
  const TensorShape &x = input(c, 1), &w = input(c, 2);
  const double k = static_cast<double>(x.size(-1)), n = k == 0 ? 0 : static_cast<double>(w.numel()) / k;
  const double m = k == 0 ? 0 : static_cast<double>(x.numel()) / k;
  const double e = x.element_bytes;
  return {OpKind::kGemm, x.element_bytes == 2, {gemm_part(1, m, k, n, e), gemm_part(1, n, k, m, e)}, 2};
}

// Scores and their product with the values, 2 operations each; a causal mask leaves half of them.
OpPart attention_part(double batch, double steps, double keys, double width, double causal, double bytes) {
  return {4 * batch * steps * keys * width * (causal != 0 ? 0.5 : 1.0), bytes};
}
OpWork attention_of(const OpCall& c, std::size_t q, std::size_t k, std::size_t causal, double factor) {
  const TensorShape &queries = input(c, q), &keys = input(c, k);
  OpPart p = attention_part(static_cast<double>(queries.size(0)), static_cast<double>(queries.size(1)),
                            static_cast<double>(keys.size(1)), static_cast<double>(queries.size(2)),
                            integer(c, causal, 1), all_bytes(c));
  p.flops *= factor;
  return {OpKind::kAttention, queries.element_bytes == 2, {p}, kAttentionKernels};
}
OpWork packed_of(const OpCall& c, std::size_t at, double factor) {
  const TensorShape& qkv = input(c, at);
  const double steps = static_cast<double>(qkv.size(1));
  OpPart p = attention_part(static_cast<double>(qkv.size(0)), steps, steps, static_cast<double>(qkv.size(2)) / 3,
                            integer(c, 1, 1), all_bytes(c));
  p.flops *= factor;
  return {OpKind::kAttention, qkv.element_bytes == 2, {p}, kAttentionKernels};
}
constexpr double kBackwardOfAttention = 2.5;  // five products instead of two

OpWork attention(const OpCall& c) { return attention_of(c, 0, 1, 2, 1); }
OpWork attention_backward(const OpCall& c) { return attention_of(c, 1, 2, 2, kBackwardOfAttention); }
OpWork attention_packed(const OpCall& c) { return packed_of(c, 0, 1); }
OpWork attention_packed_backward(const OpCall& c) { return packed_of(c, 1, kBackwardOfAttention); }

template <int kKernels>
OpWork elementwise(const OpCall& c) {
  return moving(OpKind::kElementwise, all_bytes(c), kKernels);
}
template <int kKernels>
OpWork elementwise_backward(const OpCall& c) {
  return moving(OpKind::kElementwiseBackward, all_bytes(c), kKernels);
}
OpWork rope(const OpCall& c) {
  const bool backward = integer(c, 3, 0) != 0;
  return moving(backward ? OpKind::kElementwiseBackward : OpKind::kElementwise, 2 * input(c, 0).bytes(), kRopeKernels);
}
// The rows that are looked up, not the table.
OpWork embedding(const OpCall& c) {
  const double bytes = c.outputs.empty() ? 0 : 2 * c.outputs[0].bytes();
  return moving(OpKind::kElementwise, bytes, 1);
}
// A table of zeros, and the gradient added to its rows.
OpWork embedding_backward(const OpCall& c) {
  const double table = c.outputs.empty() ? 0 : c.outputs[0].bytes();
  return moving(OpKind::kElementwiseBackward, table + 3 * input(c, 0).bytes(), 2);
}
OpWork cross_entropy(const OpCall& c) { return moving(OpKind::kElementwise, input(c, 0).bytes(), kLossKernels); }
OpWork cross_entropy_backward(const OpCall& c) {
  return moving(OpKind::kElementwiseBackward, 2 * input(c, 1).bytes(), kLossKernels);
}
OpWork add_in_place(const OpCall& c) { return moving(OpKind::kElementwiseBackward, 3 * input(c, 0).bytes(), 1); }
// Parameters, moments and the gradient are read, all but the gradient are written.
OpWork adamw(const OpCall& c) {
  const double bytes =
      2 * input(c, 0).bytes() + input(c, 1).bytes() + 2 * input(c, 2).bytes() + 2 * input(c, 3).bytes();
  return moving(OpKind::kOptimizer, bytes, 1);
}
OpWork sgd(const OpCall& c) { return moving(OpKind::kOptimizer, 2 * input(c, 0).bytes() + input(c, 1).bytes(), 1); }
OpWork pack(const OpCall& c) {
  const bool adds = integer(c, 1, 0) != 0;
  return moving(OpKind::kCopy, input(c, 1).bytes() * (adds ? 3 : 2), 1);
}
// Pieces of one tensor to another: to_at, to_stride, from_at, from_stride, piece, total, add.
OpWork move(const OpCall& c) {
  const double total = integer(c, 5, 0), adds = integer(c, 6, 0);
  return moving(OpKind::kCopy, total * (input(c, 0).element_bytes * (1 + adds) + input(c, 1).element_bytes), 1);
}
OpWork copy(const OpCall& c) { return moving(OpKind::kCopy, 2 * input(c, 0).bytes(), 1); }
OpWork fill(const OpCall& c) { return moving(OpKind::kCopy, input(c, 0).bytes(), 1); }
OpWork cast(const OpCall& c) { return moving(OpKind::kCopy, all_bytes(c), 1); }

// LibTorch's own products, which exported models run: [.., m, k] x [.., k, n]; `at` is where the first factor stands.
template <int kAt>
OpWork product(const OpCall& c) {
  const TensorShape &a = input(c, kAt), &b = input(c, kAt + 1);
  const double k = static_cast<double>(a.size(-1)), n = static_cast<double>(b.size(-1));
  const double m = static_cast<double>(a.size(-2)), batch = a.sizes.size() > 2 ? static_cast<double>(a.size(0)) : 1;
  return {OpKind::kGemm, a.element_bytes == 2, {gemm_part(batch, m, n, k, a.element_bytes)}, 1};
}
// Every element of the result is a product over the window and the channels of a group.
double convolution_flops(const TensorShape& result, const TensorShape& weight) {
  const double filters = static_cast<double>(std::max<std::int64_t>(weight.size(0), 1));
  return 2 * static_cast<double>(result.numel()) * static_cast<double>(weight.numel()) / filters;
}
OpWork convolution(const OpCall& c) {
  const double flops = c.outputs.empty() ? 0 : convolution_flops(c.outputs[0], input(c, 1));
  return {OpKind::kGemm, input(c, 0).element_bytes == 2, {{flops, all_bytes(c)}}, 1};
}
// grad, input, weight: one product for each of the two gradients.
OpWork convolution_backward(const OpCall& c) {
  const OpPart part{convolution_flops(input(c, 0), input(c, 2)), all_bytes(c) / 2};
  return {OpKind::kGemm, input(c, 1).element_bytes == 2, {part, part}, 2};
}
// [batch, heads, steps, width]; `causal` is the first integer.
OpWork fused_attention_of(const OpCall& c, std::size_t q, double factor) {
  const TensorShape &queries = input(c, q), &keys = input(c, q + 1);
  OpPart p = attention_part(static_cast<double>(queries.size(0)), static_cast<double>(queries.size(2)),
                            static_cast<double>(keys.size(2)), static_cast<double>(queries.size(1) * queries.size(3)),
                            integer(c, 0, 0), all_bytes(c));
  p.flops *= factor;
  return {OpKind::kAttention, queries.element_bytes == 2, {p}, 1};
}
OpWork fused_attention(const OpCall& c) { return fused_attention_of(c, 0, 1); }
OpWork fused_attention_backward(const OpCall& c) { return fused_attention_of(c, 1, kBackwardOfAttention); }
// What is read is as much as what is made.
OpWork gathered(const OpCall& c) {
  double bytes = 0;
  for (const TensorShape& t : c.outputs) bytes += 2 * t.bytes();
  return moving(OpKind::kElementwise, bytes, 1);
}

const std::map<std::string_view, Work>& table() {
  static const std::map<std::string_view, Work> works = {
      {"linear", linear},
      {"linear_backward", linear_backward},
      {"attention", attention},
      {"attention_backward", attention_backward},
      {"attention_packed", attention_packed},
      {"attention_packed_backward", attention_packed_backward},
      {"rms_norm", elementwise<kNormKernels>},
      {"rms_norm_backward", elementwise_backward<kNormKernels>},
      {"layer_norm", elementwise<1>},
      {"layer_norm_backward", elementwise_backward<2>},
      {"swiglu", elementwise<kSwigluKernels>},
      {"swiglu_backward", elementwise_backward<2 * kSwigluKernels>},
      {"gelu", elementwise<1>},
      {"gelu_backward", elementwise_backward<1>},
      {"mean_steps", elementwise<1>},
      {"mean_steps_backward", elementwise_backward<1>},
      {"relative_bias", elementwise<2>},
      {"relative_bias_backward", elementwise_backward<2>},
      {"relu", elementwise<1>},
      {"relu_backward", elementwise_backward<1>},
      {"rope", rope},
      {"embedding", embedding},
      {"embedding_backward", embedding_backward},
      {"cross_entropy", cross_entropy},
      {"cross_entropy_backward", cross_entropy_backward},
      {"add_", add_in_place},
      {"adamw_", adamw},
      {"sgd_", sgd},
      {"pack_", pack},
      {"move_", move},
      {"square_sum", fill},
      {"copy_", copy},
      {"cast", cast},
      {"fill_", fill},
      {"zero_", fill},
      {"add", elementwise<1>},
      {"mm", product<0>},
      {"bmm", product<0>},
      {"addmm", product<1>},
      {"baddbmm", product<1>},
      {"convolution", convolution},
      {"convolution_backward", convolution_backward},
      {"_scaled_dot_product_flash_attention_for_cpu", fused_attention},
      {"_scaled_dot_product_flash_attention_for_cpu_backward", fused_attention_backward},
      {"embedding_dense_backward", embedding_backward},
      {"index_select", gathered},
      {"index", gathered},
      {"gather", gathered},
  };
  return works;
}

constexpr std::string_view kFree[] = {"empty",
                                      "empty_like",
                                      "empty_strided",
                                      "detach",
                                      "view",
                                      "reshape",
                                      "alias",
                                      "as_strided",
                                      "set_",
                                      "resize_",
                                      "slice",
                                      "select",
                                      "narrow",
                                      "t",
                                      "transpose",
                                      "expand",
                                      "unsqueeze",
                                      "squeeze",
                                      "size",
                                      "is_pinned",
                                      "new_empty",
                                      "variable_data",
                                      "_unsafe_view",
                                      "permute",
                                      "split",
                                      "unbind",
                                      "split_with_sizes",
                                      "unfold",
                                      "_reshape_alias",
                                      "diagonal",
                                      "lift_fresh",
                                      "view_as_real",
                                      "view_as_complex",
                                      "chunk",
                                      "new_empty_strided"};

}  // namespace

std::int64_t TensorShape::numel() const {
  if (sizes.empty()) return 0;
  std::int64_t n = 1;
  for (const std::int64_t s : sizes) n *= s;
  return n;
}

std::int64_t TensorShape::size(int dimension) const {
  const int n = static_cast<int>(sizes.size()), at = dimension < 0 ? n + dimension : dimension;
  return at < 0 || at >= n ? 0 : sizes[static_cast<std::size_t>(at)];
}

double OpWork::flops() const {
  double sum = 0;
  for (const OpPart& p : parts) sum += p.flops;
  return sum;
}
double OpWork::bytes() const {
  double sum = 0;
  for (const OpPart& p : parts) sum += p.bytes;
  return sum;
}

OpPart gemm_part(double b, double m, double n, double k, double element_bytes) {
  return {2 * b * m * n * k, element_bytes * b * (m * k + k * n + m * n)};
}

OpWork work_of(const OpCall& call) {
  const auto found = table().find(call.name);
  if (found != table().end()) return found->second(call);
  if (std::find(std::begin(kFree), std::end(kFree), call.name) != std::end(kFree)) return {};
  const double bytes = all_bytes(call);
  return bytes > 0 ? moving(OpKind::kElementwise, bytes, 1) : OpWork{};
}

}  // namespace harness
