// CUDA bodies by LibTorch's own operators: no CUDA header, so the file builds everywhere and runs where LibTorch has
// its CUDA part. Attention takes the memory-efficient kernel, which knows fp32; grouped queries repeat the key heads.
#include "fsdp/module/op_bodies.h"
#include "fsdp/module/relative_bias.h"

namespace fsdp::ops::cuda {
namespace {

Tensor by_head(const Tensor& t, int64_t heads) {  // [b, t, h * d] -> [b, h, t, d]
  return t.view({t.size(0), t.size(1), heads, t.size(2) / heads}).transpose(1, 2);
}
Tensor from_heads(const Tensor& t) { return t.transpose(1, 2).reshape({t.size(0), t.size(2), t.size(1) * t.size(3)}); }
Tensor repeat_heads(const Tensor& t, int64_t times) { return times == 1 ? t : t.repeat_interleave(times, 1); }
Tensor gather_groups(const Tensor& t, int64_t kv_heads, int64_t times) {
  return times == 1 ? t : t.view({t.size(0), kv_heads, times, t.size(2), t.size(3)}).sum(2);
}
std::tuple<Tensor, Tensor, Tensor> unpack(const Tensor& qkv, int64_t heads, bool by_head) {
  const int64_t head_dim = qkv.size(2) / (3 * heads);
  const auto p = by_head ? qkv.view({qkv.size(0), qkv.size(1), heads, 3, head_dim}).permute({3, 0, 2, 1, 4})
                         : qkv.view({qkv.size(0), qkv.size(1), 3, heads, head_dim}).permute({2, 0, 3, 1, 4});
  return {p[0], p[1], p[2]};
}
// The kernel wants rows of the bias aligned: a copy with rows of a multiple of 8, seen without their ends.
OptTensor aligned(const OptTensor& bias, int64_t batch, at::ScalarType dtype) {
  if (!bias) return std::nullopt;
  const int64_t heads = bias->size(0), queries = bias->size(1), keys = bias->size(2);
  Tensor rows = at::zeros({heads, queries, (keys + 7) / 8 * 8}, bias->options().dtype(dtype));
  rows = rows.narrow(2, 0, keys);
  rows.copy_(*bias);
  return rows.unsqueeze(0).expand({batch, heads, queries, keys});
}
Pair efficient(const Tensor& q, const Tensor& k, const Tensor& v, const OptTensor& bias, bool causal, double scale) {
  auto r = at::_scaled_dot_product_efficient_attention(q, k, v, aligned(bias, q.size(0), q.scalar_type()), true, 0.0,
                                                       causal, scale);
  return {std::get<0>(r), std::get<1>(r)};
}
Quad efficient_backward(const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v, const OptTensor& bias,
                        const Tensor& out, const Tensor& lse, bool causal, double scale) {
  const Tensor unused = at::empty({}, q.options().dtype(at::kLong).device(at::kCPU));
  const Tensor rows = aligned(bias, q.size(0), q.scalar_type()).value_or(Tensor());
  auto r = at::_scaled_dot_product_efficient_attention_backward(g, q, k, v, rows, out, lse, unused, unused, 0.0,
                                                                {true, true, true, bias.has_value()}, causal, scale);
  const Tensor d_bias = bias ? std::get<3>(r).sum(0).to(bias->scalar_type()).contiguous() : Tensor();
  return {std::get<0>(r), std::get<1>(r), std::get<2>(r), d_bias};
}
Tensor bucket_ids(int64_t queries, int64_t keys, int64_t buckets, bool both_ways, int64_t far, const Tensor& like) {
  Tensor ids = at::empty({queries, keys}, at::kLong);
  auto* to = ids.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < keys; ++j) *to++ = relative_bucket(j - i, buckets, both_ways, far);
  return ids.to(like.device());
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& w, const OptTensor& b, bool in_out) {
  return at::linear(x, in_out ? w.t() : w, b);
}
Triple linear_backward(const Tensor& g, const Tensor& x, const Tensor& w, bool bias, bool in_out) {
  const Tensor flat = g.reshape({-1, g.size(-1)}), rows = x.reshape({-1, x.size(-1)});
  Tensor dx = at::mm(flat, in_out ? w.t() : w).view(x.sizes());
  Tensor dw = in_out ? at::mm(rows.t(), flat) : at::mm(flat.t(), rows);
  return {dx, dw, bias ? flat.sum(0) : Tensor()};
}
Pair rms_norm(const Tensor& x, const Tensor& w, double eps) { return at::_fused_rms_norm(x, {x.size(-1)}, w, eps); }
Pair rms_norm_backward(const Tensor& g, const Tensor& x, const Tensor& rstd, const Tensor& w) {
  return at::_fused_rms_norm_backward(g, x, {x.size(-1)}, rstd, w, {true, true});
}
Triple layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  return at::native_layer_norm(x, {x.size(-1)}, w, b, eps);
}
Triple layer_norm_backward(const Tensor& g, const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& w) {
  return at::native_layer_norm_backward(g, x, {x.size(-1)}, mean, rstd, w, at::empty_like(w), {true, true, true});
}
Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t head_dim, int64_t period, int64_t turned,
            bool backward) {
  const int64_t half = cos.size(1), steps = x.size(1);
  Tensor y = x.clone(at::MemoryFormat::Contiguous);
  const std::vector<int64_t> shape{x.size(0), steps, x.size(2) / (head_dim * period), period, head_dim};
  const Tensor from = x.view(shape).narrow(3, 0, turned), to = y.view(shape).narrow(3, 0, turned);
  const Tensor c = cos.narrow(0, 0, steps).view({steps, 1, 1, half});
  Tensor s = sin.narrow(0, 0, steps).view({steps, 1, 1, half});
  if (backward) s = -s;
  const Tensor a = from.narrow(4, 0, half), b = from.narrow(4, half, half);
  to.narrow(4, 0, half).copy_(a * c - b * s);
  to.narrow(4, half, half).copy_(b * c + a * s);
  return y;
}
Pair attention(const Tensor& q, const Tensor& k, const Tensor& v, const OptTensor& bias, int64_t heads,
               int64_t kv_heads, bool causal, double scale) {
  const int64_t times = heads / kv_heads;
  auto [out, lse] = efficient(by_head(q, heads), repeat_heads(by_head(k, kv_heads), times),
                              repeat_heads(by_head(v, kv_heads), times), bias, causal, scale);
  return {from_heads(out), lse};
}
Quad attention_backward(const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v, const OptTensor& bias,
                        const Tensor& out, const Tensor& lse, int64_t heads, int64_t kv_heads, bool causal,
                        double scale) {
  const int64_t times = heads / kv_heads;
  auto [dq, dk, dv, d_bias] =
      efficient_backward(by_head(g, heads), by_head(q, heads), repeat_heads(by_head(k, kv_heads), times),
                         repeat_heads(by_head(v, kv_heads), times), bias, by_head(out, heads), lse, causal, scale);
  return {from_heads(dq), from_heads(gather_groups(dk, kv_heads, times)),
          from_heads(gather_groups(dv, kv_heads, times)), d_bias};
}
Tensor relative_bias(const Tensor& table, int64_t queries, int64_t keys, bool both_ways, int64_t far) {
  const Tensor ids = bucket_ids(queries, keys, table.size(0), both_ways, far, table);
  return at::embedding(table, ids).permute({2, 0, 1}).contiguous();
}
Tensor relative_bias_backward(const Tensor& g, int64_t buckets, bool both_ways, int64_t far) {
  const Tensor ids = bucket_ids(g.size(1), g.size(2), buckets, both_ways, far, g);
  return at::embedding_dense_backward(g.permute({1, 2, 0}).contiguous(), ids, buckets, -1, false);
}
Pair attention_packed(const Tensor& qkv, int64_t heads, bool causal, double scale, bool by_head) {
  const auto [q, k, v] = unpack(qkv, heads, by_head);
  auto [out, lse] = efficient(q, k, v, std::nullopt, causal, scale);
  return {from_heads(out), lse};
}
Tensor attention_packed_backward(const Tensor& g, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                                 int64_t heads, bool causal, double scale, bool interleaved) {
  const auto [q, k, v] = unpack(qkv, heads, interleaved);
  auto [dq, dk, dv, none] =
      efficient_backward(by_head(g, heads), q, k, v, std::nullopt, by_head(out, heads), lse, causal, scale);
  if (!interleaved) return at::stack({dq, dk, dv}, 1).permute({0, 3, 1, 2, 4}).reshape(qkv.sizes());
  return at::stack({dq, dk, dv}, 3).permute({0, 2, 1, 3, 4}).reshape(qkv.sizes());
}
Tensor swiglu(const Tensor& gate, const Tensor& up) { return at::silu(gate).mul_(up); }
Pair swiglu_backward(const Tensor& g, const Tensor& gate, const Tensor& up) {
  Tensor d_up = at::silu(gate).mul_(g), d_gate = at::silu_backward(g * up, gate);
  return {d_gate, d_up};
}
Tensor gelu(const Tensor& x, bool by_tanh) { return at::gelu(x, by_tanh ? "tanh" : "none"); }
Tensor gelu_backward(const Tensor& g, const Tensor& x, bool by_tanh) {
  return at::gelu_backward(g, x, by_tanh ? "tanh" : "none");
}
Tensor relu(const Tensor& x) { return at::relu(x); }
Tensor relu_backward(const Tensor& g, const Tensor& y) { return at::threshold_backward(g, y, 0); }
Tensor mean_steps(const Tensor& x) { return x.mean(1); }
Tensor mean_steps_backward(const Tensor& g, int64_t steps) {
  return (g / static_cast<double>(steps)).unsqueeze(1).expand({g.size(0), steps, g.size(1)}).contiguous();
}
Tensor embedding(const Tensor& w, const Tensor& ids) { return at::embedding(w, ids); }
Tensor embedding_backward(const Tensor& g, const Tensor& ids, int64_t rows) {
  return at::embedding_dense_backward(g, ids, rows, -1, false);
}
Pair cross_entropy(const Tensor& logits, const Tensor& targets) {
  const Tensor flat = logits.reshape({-1, logits.size(-1)}), lse = at::logsumexp(flat, {1});
  return {(lse - flat.gather(1, targets.reshape({-1, 1})).squeeze(1)).mean(), lse};
}
Tensor cross_entropy_backward(const Tensor& g, const Tensor& logits, const Tensor& targets, const Tensor& lse) {
  Tensor d = at::exp(logits.reshape({-1, logits.size(-1)}) - lse.unsqueeze(1));
  const Tensor ids = targets.reshape({-1, 1});
  d.scatter_add_(1, ids, at::full(ids.sizes(), -1.0, d.options()));
  return d.mul_(g / static_cast<double>(ids.size(0))).view(logits.sizes());
}
void add_(const Tensor& into, const Tensor& from) { Tensor(into).add_(from); }
// The sum of squares is read back: it ends the step's queue, as reading the loss does.
double adamw_(const Tensor& p, const Tensor& gradient, const Tensor& m, const Tensor& v, double lr, double beta1,
              double beta2, double eps, double weight_decay, int64_t step, double gradient_scale) {
  const auto t = static_cast<double>(step);
  Tensor weights = p, mean = m, variance = v;
  const Tensor g = gradient_scale == 1.0 ? gradient : gradient * gradient_scale;
  weights.mul_(1.0 - lr * weight_decay);
  mean.lerp_(g, 1.0 - beta1);
  variance.mul_(beta2).addcmul_(g, g, 1.0 - beta2);
  const Tensor root = variance.sqrt().div_(std::sqrt(1.0 - std::pow(beta2, t))).add_(eps);
  weights.addcdiv_(mean, root, -lr / (1.0 - std::pow(beta1, t)));
  return gradient.square().sum(at::kDouble).item<double>();
}
double sgd_(const Tensor& p, const Tensor& g, double lr) {
  Tensor(p).sub_(g, lr);
  return g.square().sum(at::kDouble).item<double>();
}
double square_sum(const Tensor& x) { return x.square().sum(at::kDouble).item<double>(); }
Tensor cast(const Tensor& x, at::ScalarType dtype) { return x.to(dtype); }
void move_(const Tensor& to, int64_t to_at, int64_t to_stride, const Tensor& from, int64_t from_at, int64_t from_stride,
           int64_t piece, int64_t total, bool add) {
  const Tensor source = from.reshape({-1}), target = to.reshape({-1});
  for (int64_t i = 0; i * piece < total; ++i) {
    const int64_t n = std::min(piece, total - i * piece);
    Tensor into = target.narrow(0, to_at + i * to_stride, n);
    if (add)
      into.add_(source.narrow(0, from_at + i * from_stride, n));
    else
      into.copy_(source.narrow(0, from_at + i * from_stride, n));
  }
}

}  // namespace fsdp::ops::cuda
