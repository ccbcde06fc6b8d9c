// Bodies of the operators, by device; ops.cc registers and calls them. Private to the room.
#pragma once
#include <tuple>

#include "fsdp/module/torch.h"

namespace fsdp::ops {

using at::Tensor;
using Pair = std::tuple<Tensor, Tensor>;
using Triple = std::tuple<Tensor, Tensor, Tensor>;
using Quad = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using OptTensor = std::optional<Tensor>;

// Calls X(name, result, (arguments)) for each operator; the schemas stand in ops.cc.
#define SHARDSCOPE_OPERATORS(X)                                                                                        \
  X(linear, Tensor, (const Tensor& x, const Tensor& w, const OptTensor& b, bool in_out))                               \
  X(linear_backward, Triple, (const Tensor& g, const Tensor& x, const Tensor& w, bool bias, bool in_out))              \
  X(rms_norm, Pair, (const Tensor& x, const Tensor& w, double eps))                                                    \
  X(rms_norm_backward, Pair, (const Tensor& g, const Tensor& x, const Tensor& rstd, const Tensor& w))                  \
  X(layer_norm, Triple, (const Tensor& x, const Tensor& w, const Tensor& b, double eps))                               \
  X(layer_norm_backward, Triple,                                                                                       \
    (const Tensor& g, const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& w))                       \
  X(rope, Tensor,                                                                                                      \
    (const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t head_dim, int64_t period, int64_t turned,          \
     bool backward))                                                                                                   \
  X(attention, Pair,                                                                                                   \
    (const Tensor& q, const Tensor& k, const Tensor& v, const OptTensor& bias, int64_t heads, int64_t kv_heads,        \
     bool causal, double scale))                                                                                       \
  X(attention_backward, Quad,                                                                                          \
    (const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v, const OptTensor& bias, const Tensor& out,     \
     const Tensor& lse, int64_t heads, int64_t kv_heads, bool causal, double scale))                                   \
  X(attention_packed, Pair, (const Tensor& qkv, int64_t heads, bool causal, double scale, bool by_head))               \
  X(attention_packed_backward, Tensor,                                                                                 \
    (const Tensor& g, const Tensor& qkv, const Tensor& out, const Tensor& lse, int64_t heads, bool causal,             \
     double scale, bool by_head))                                                                                      \
  X(relative_bias, Tensor, (const Tensor& table, int64_t queries, int64_t keys, bool both_ways, int64_t far))          \
  X(relative_bias_backward, Tensor, (const Tensor& g, int64_t buckets, bool both_ways, int64_t far))                   \
  X(swiglu, Tensor, (const Tensor& gate, const Tensor& up))                                                            \
  X(swiglu_backward, Pair, (const Tensor& g, const Tensor& gate, const Tensor& up))                                    \
  X(gelu, Tensor, (const Tensor& x, bool by_tanh))                                                                     \
  X(gelu_backward, Tensor, (const Tensor& g, const Tensor& x, bool by_tanh))                                           \
  X(relu, Tensor, (const Tensor& x))                                                                                   \
  X(relu_backward, Tensor, (const Tensor& g, const Tensor& y))                                                         \
  X(mean_steps, Tensor, (const Tensor& x))                                                                             \
  X(mean_steps_backward, Tensor, (const Tensor& g, int64_t steps))                                                     \
  X(embedding, Tensor, (const Tensor& w, const Tensor& ids))                                                           \
  X(embedding_backward, Tensor, (const Tensor& g, const Tensor& ids, int64_t rows))                                    \
  X(cross_entropy, Pair, (const Tensor& logits, const Tensor& targets))                                                \
  X(cross_entropy_backward, Tensor, (const Tensor& g, const Tensor& logits, const Tensor& targets, const Tensor& lse)) \
  X(add_, void, (const Tensor& into, const Tensor& from))                                                              \
  X(cast, Tensor, (const Tensor& x, at::ScalarType dtype))                                                             \
  X(adamw_, double,                                                                                                    \
    (const Tensor& p, const Tensor& g, const Tensor& m, const Tensor& v, double lr, double beta1, double beta2,        \
     double eps, double weight_decay, int64_t step, double gradient_scale))                                            \
  X(sgd_, double, (const Tensor& p, const Tensor& g, double lr))                                                       \
  X(square_sum, double, (const Tensor& x))                                                                             \
  X(move_, void,                                                                                                       \
    (const Tensor& to, int64_t to_at, int64_t to_stride, const Tensor& from, int64_t from_at, int64_t from_stride,     \
     int64_t piece, int64_t total, bool add))

#define SHARDSCOPE_DECLARE(name, result, arguments) result name arguments;
namespace host {
SHARDSCOPE_OPERATORS(SHARDSCOPE_DECLARE)
}
namespace meta {
SHARDSCOPE_OPERATORS(SHARDSCOPE_DECLARE)
}
namespace cuda {
SHARDSCOPE_OPERATORS(SHARDSCOPE_DECLARE)
}
#undef SHARDSCOPE_DECLARE

// Shapes and types of what operators make, the same on host and meta.
inline at::ScalarType promoted(const Tensor& a, const Tensor& b) {
  return a.scalar_type() == b.scalar_type() ? a.scalar_type() : at::kFloat;
}
inline std::vector<int64_t> resized_last(const Tensor& x, int64_t last) {
  auto s = x.sizes().vec();
  s.back() = last;
  return s;
}
inline std::vector<int64_t> rows_of(const Tensor& x) { return {x.sizes().begin(), x.sizes().end() - 1}; }

}  // namespace fsdp::ops
