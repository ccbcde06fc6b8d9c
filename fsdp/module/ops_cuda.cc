// CUDA bodies by LibTorch's own operators: no CUDA header, so the file builds everywhere and runs where LibTorch has
// its CUDA part. Attention takes the memory-efficient kernel, which knows fp32; grouped queries repeat the key heads.
#include "fsdp/module/op_bodies.h"

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
std::tuple<Tensor, Tensor, Tensor> unpack(const Tensor& qkv, int64_t heads) {
  const auto p = qkv.view({qkv.size(0), qkv.size(1), heads, 3, qkv.size(2) / (3 * heads)}).permute({3, 0, 2, 1, 4});
  return {p[0], p[1], p[2]};
}
Pair efficient(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale) {
  auto r = at::_scaled_dot_product_efficient_attention(q, k, v, std::nullopt, true, 0.0, causal, scale);
  return {std::get<0>(r), std::get<1>(r)};
}
Triple efficient_backward(const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                          const Tensor& lse, bool causal, double scale) {
  const Tensor unused = at::empty({}, q.options().dtype(at::kLong).device(at::kCPU));
  auto r = at::_scaled_dot_product_efficient_attention_backward(g, q, k, v, Tensor(), out, lse, unused, unused, 0.0,
                                                                {true, true, true, false}, causal, scale);
  return {std::get<0>(r), std::get<1>(r), std::get<2>(r)};
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& w, const OptTensor& b) { return at::linear(x, w, b); }
Triple linear_backward(const Tensor& g, const Tensor& x, const Tensor& w, bool bias) {
  const Tensor flat = g.reshape({-1, g.size(-1)});
  Tensor dx = at::mm(flat, w).view(x.sizes()), dw = at::mm(flat.t(), x.reshape({-1, x.size(-1)}));
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
Pair attention(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads, int64_t kv_heads, bool causal,
               double scale) {
  const int64_t times = heads / kv_heads;
  auto [out, lse] = efficient(by_head(q, heads), repeat_heads(by_head(k, kv_heads), times),
                              repeat_heads(by_head(v, kv_heads), times), causal, scale);
  return {from_heads(out), lse};
}
Triple attention_backward(const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                          const Tensor& lse, int64_t heads, int64_t kv_heads, bool causal, double scale) {
  const int64_t times = heads / kv_heads;
  auto [dq, dk, dv] =
      efficient_backward(by_head(g, heads), by_head(q, heads), repeat_heads(by_head(k, kv_heads), times),
                         repeat_heads(by_head(v, kv_heads), times), by_head(out, heads), lse, causal, scale);
  return {from_heads(dq), from_heads(gather_groups(dk, kv_heads, times)),
          from_heads(gather_groups(dv, kv_heads, times))};
}
Pair attention_packed(const Tensor& qkv, int64_t heads, bool causal, double scale) {
  const auto [q, k, v] = unpack(qkv, heads);
  auto [out, lse] = efficient(q, k, v, causal, scale);
  return {from_heads(out), lse};
}
Tensor attention_packed_backward(const Tensor& g, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                                 int64_t heads, bool causal, double scale) {
  const auto [q, k, v] = unpack(qkv, heads);
  auto [dq, dk, dv] = efficient_backward(by_head(g, heads), q, k, v, by_head(out, heads), lse, causal, scale);
  return at::stack({dq, dk, dv}, 3).permute({0, 2, 1, 3, 4}).reshape(qkv.sizes());
}
Tensor swiglu(const Tensor& gate, const Tensor& up) { return at::silu(gate).mul_(up); }
Pair swiglu_backward(const Tensor& g, const Tensor& gate, const Tensor& up) {
  Tensor d_up = at::silu(gate).mul_(g), d_gate = at::silu_backward(g * up, gate);
  return {d_gate, d_up};
}
Tensor gelu(const Tensor& x) { return at::gelu(x); }
Tensor gelu_backward(const Tensor& g, const Tensor& x) { return at::gelu_backward(g, x); }
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
