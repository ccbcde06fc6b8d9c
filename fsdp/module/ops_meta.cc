// Meta bodies: allocate what the host bodies allocate, in the same order, and compute nothing.
#include "fsdp/module/op_bodies.h"

namespace fsdp::ops::meta {
namespace {

Tensor fresh(at::IntArrayRef sizes, const Tensor& like) { return at::empty(sizes, like.options()); }
Tensor fresh(at::IntArrayRef sizes, const Tensor& like, at::ScalarType dtype) {
  return at::empty(sizes, like.options().dtype(dtype));
}
Tensor statistic(at::IntArrayRef sizes, const Tensor& like) {
  return at::empty(sizes, like.options().dtype(at::kFloat));
}
int64_t rows(const Tensor& x) { return x.size(-1) == 0 ? 0 : x.numel() / x.size(-1); }

}  // namespace

Tensor linear(const Tensor& x, const Tensor& w, const OptTensor&, bool in_out) {
  return fresh(resized_last(x, w.size(in_out ? 1 : 0)), x, promoted(x, w));
}
Triple linear_backward(const Tensor&, const Tensor& x, const Tensor& w, bool bias, bool in_out) {
  Tensor dx = fresh(x.sizes(), x), dw = fresh(w.sizes(), w);
  Tensor db = bias ? fresh({w.size(in_out ? 1 : 0)}, w) : Tensor();
  return {dx, dw, db};
}
Pair rms_norm(const Tensor& x, const Tensor& w, double) {
  Tensor y = fresh(x.sizes(), x, promoted(x, w)), rstd = statistic(rows_of(x), x);
  return {y, rstd};
}
Pair rms_norm_backward(const Tensor&, const Tensor& x, const Tensor&, const Tensor& w) {
  Tensor dx = fresh(x.sizes(), x), dw = fresh(w.sizes(), w);
  return {dx, dw};
}
Triple layer_norm(const Tensor& x, const Tensor& w, const Tensor&, double) {
  Tensor y = fresh(x.sizes(), x, promoted(x, w)), mean = statistic(rows_of(x), x), rstd = statistic(rows_of(x), x);
  return {y, mean, rstd};
}
Triple layer_norm_backward(const Tensor&, const Tensor& x, const Tensor&, const Tensor&, const Tensor& w) {
  Tensor dx = fresh(x.sizes(), x), dw = fresh(w.sizes(), w), db = fresh(w.sizes(), w);
  return {dx, dw, db};
}
Tensor rope(const Tensor& x, const Tensor&, const Tensor&, int64_t, int64_t, int64_t, bool) {
  return fresh(x.sizes(), x);
}
Pair attention(const Tensor& q, const Tensor&, const Tensor&, const OptTensor&, int64_t heads, int64_t, bool, double) {
  Tensor y = fresh(q.sizes(), q), lse = statistic({q.size(0), heads, q.size(1)}, q);
  return {y, lse};
}
Quad attention_backward(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v, const OptTensor& bias,
                        const Tensor&, const Tensor&, int64_t, int64_t, bool, double) {
  Tensor dq = fresh(q.sizes(), q), dk = fresh(k.sizes(), k), dv = fresh(v.sizes(), v);
  return {dq, dk, dv, bias ? fresh(bias->sizes(), *bias) : Tensor()};
}
Tensor relative_bias(const Tensor& table, int64_t queries, int64_t keys, bool, int64_t) {
  return fresh({table.size(1), queries, keys}, table);
}
Tensor relative_bias_backward(const Tensor& g, int64_t buckets, bool, int64_t) {
  return fresh({buckets, g.size(0)}, g);
}
Pair attention_packed(const Tensor& qkv, int64_t heads, bool, double, bool) {
  Tensor y = fresh(resized_last(qkv, qkv.size(-1) / 3), qkv), lse = statistic({qkv.size(0), heads, qkv.size(1)}, qkv);
  return {y, lse};
}
Tensor attention_packed_backward(const Tensor&, const Tensor& qkv, const Tensor&, const Tensor&, int64_t, bool, double,
                                 bool) {
  return fresh(qkv.sizes(), qkv);
}
Tensor swiglu(const Tensor& gate, const Tensor&) { return fresh(gate.sizes(), gate); }
Pair swiglu_backward(const Tensor&, const Tensor& gate, const Tensor& up) {
  Tensor d_gate = fresh(gate.sizes(), gate), d_up = fresh(up.sizes(), up);
  return {d_gate, d_up};
}
Tensor gelu(const Tensor& x, bool) { return fresh(x.sizes(), x); }
Tensor gelu_backward(const Tensor&, const Tensor& x, bool) { return fresh(x.sizes(), x); }
Tensor relu(const Tensor& x) { return fresh(x.sizes(), x); }
Tensor relu_backward(const Tensor&, const Tensor& y) { return fresh(y.sizes(), y); }
Tensor mean_steps(const Tensor& x) { return fresh({x.size(0), x.size(2)}, x); }
Tensor mean_steps_backward(const Tensor& g, int64_t steps) { return fresh({g.size(0), steps, g.size(1)}, g); }
Tensor embedding(const Tensor& w, const Tensor& ids) {
  auto sizes = ids.sizes().vec();
  sizes.push_back(w.size(1));
  return fresh(sizes, w);
}
Tensor embedding_backward(const Tensor& g, const Tensor&, int64_t table_rows) {
  return fresh({table_rows, g.size(-1)}, g);
}
Pair cross_entropy(const Tensor& logits, const Tensor&) {
  Tensor loss = statistic({}, logits), lse = statistic({rows(logits)}, logits);
  return {loss, lse};
}
Tensor cross_entropy_backward(const Tensor&, const Tensor& logits, const Tensor&, const Tensor&) {
  return fresh(logits.sizes(), logits);
}
void add_(const Tensor&, const Tensor&) {}
Tensor cast(const Tensor& x, at::ScalarType dtype) { return fresh(x.sizes(), x, dtype); }
double adamw_(const Tensor&, const Tensor&, const Tensor&, const Tensor&, double, double, double, double, double,
              int64_t, double) {
  return 0.0;
}
double sgd_(const Tensor&, const Tensor&, double) { return 0.0; }
double square_sum(const Tensor&) { return 0.0; }
void move_(const Tensor&, int64_t, int64_t, const Tensor&, int64_t, int64_t, int64_t, int64_t, bool) {}

}  // namespace fsdp::ops::meta
