// Host bodies: fp32, contiguous, by the loops of kernels.h. Scratch inside a kernel does not pass through the tensor
// allocator, as a CUDA kernel's does not.
#include "fsdp/module/kernels.h"
#include "fsdp/module/op_bodies.h"

namespace fsdp::ops::host {
namespace {

const float* in(const Tensor& t, const char* what) {
  TORCH_CHECK(t.scalar_type() == at::kFloat && t.is_contiguous(), "shardscope::", what,
              " on the host takes contiguous fp32 tensors, not ", t.scalar_type(), " with strides ", t.strides());
  return t.const_data_ptr<float>();
}
float* out(const Tensor& t) { return t.mutable_data_ptr<float>(); }
const int64_t* ids_of(const Tensor& t) {
  TORCH_CHECK(t.scalar_type() == at::kLong && t.is_contiguous(), "shardscope: ids must be contiguous int64");
  return t.const_data_ptr<int64_t>();
}
Tensor fresh(at::IntArrayRef sizes) { return at::detail::empty_cpu(sizes, at::kFloat); }
int64_t rows(const Tensor& x) { return x.size(-1) == 0 ? 0 : x.numel() / x.size(-1); }

kernels::AttentionShape shape_of(const Tensor& q, const Tensor& k, int64_t heads, int64_t kv_heads, bool causal,
                                 double scale) {
  TORCH_CHECK(heads % kv_heads == 0 && q.size(-1) % heads == 0, "shardscope::attention: ", heads, " heads over ",
              kv_heads, " in a width of ", q.size(-1));
  return {q.size(0), heads, kv_heads, q.size(1), k.size(1), q.size(-1) / heads, causal, static_cast<float>(scale)};
}
kernels::HeadView heads_of(const Tensor& t, int64_t head_dim) {
  return {const_cast<float*>(in(t, "attention")), t.size(-1), head_dim};
}
kernels::HeadView part_of(const Tensor& packed, int64_t head_dim, int part) {
  return {const_cast<float*>(in(packed, "attention_packed")) + part * head_dim, packed.size(-1), 3 * head_dim};
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& w, const OptTensor& b) {
  const int64_t m = rows(x), k = x.size(-1), n = w.size(0);
  TORCH_CHECK(w.dim() == 2 && w.size(1) == k, "shardscope::linear: x ", x.sizes(), ", w ", w.sizes());
  Tensor y = fresh(resized_last(x, n));
  kernels::gemm(false, true, m, n, k, in(x, "linear"), k, in(w, "linear"), k, out(y), n, false);
  if (b && b->defined()) kernels::add_rows(out(y), in(*b, "linear"), m, n);
  return y;
}
Triple linear_backward(const Tensor& g, const Tensor& x, const Tensor& w, bool bias) {
  const int64_t m = rows(x), k = x.size(-1), n = w.size(0);
  Tensor dx = fresh(x.sizes()), dw = fresh(w.sizes()), db = bias ? fresh({n}) : Tensor();
  const float* gp = in(g, "linear_backward");
  kernels::gemm(false, false, m, k, n, gp, n, in(w, "linear_backward"), k, out(dx), k, false);
  kernels::gemm(true, false, n, k, m, gp, n, in(x, "linear_backward"), k, out(dw), k, false);
  if (bias) kernels::column_sums(gp, m, n, out(db));
  return {dx, dw, db};
}

Pair rms_norm(const Tensor& x, const Tensor& w, double eps) {
  Tensor y = fresh(x.sizes()), rstd = fresh(rows_of(x));
  kernels::rms_norm(in(x, "rms_norm"), in(w, "rms_norm"), rows(x), x.size(-1), static_cast<float>(eps), out(y),
                    out(rstd));
  return {y, rstd};
}
Pair rms_norm_backward(const Tensor& g, const Tensor& x, const Tensor& rstd, const Tensor& w) {
  Tensor dx = fresh(x.sizes()), dw = fresh(w.sizes());
  kernels::rms_norm_backward(in(g, "rms_norm_backward"), in(x, "rms_norm_backward"), in(rstd, "rms_norm_backward"),
                             in(w, "rms_norm_backward"), rows(x), x.size(-1), out(dx), out(dw));
  return {dx, dw};
}

Triple layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  Tensor y = fresh(x.sizes()), mean = fresh(rows_of(x)), rstd = fresh(rows_of(x));
  kernels::layer_norm(in(x, "layer_norm"), in(w, "layer_norm"), in(b, "layer_norm"), rows(x), x.size(-1),
                      static_cast<float>(eps), out(y), out(mean), out(rstd));
  return {y, mean, rstd};
}
Triple layer_norm_backward(const Tensor& g, const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& w) {
  Tensor dx = fresh(x.sizes()), dw = fresh(w.sizes()), db = fresh(w.sizes());
  constexpr const char* kName = "layer_norm_backward";
  kernels::layer_norm_backward(in(g, kName), in(x, kName), in(mean, kName), in(rstd, kName), in(w, kName), rows(x),
                               x.size(-1), out(dx), out(dw), out(db));
  return {dx, dw, db};
}

Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t head_dim, int64_t period, int64_t turned,
            bool backward) {
  TORCH_CHECK(x.dim() == 3 && cos.size(0) >= x.size(1) && x.size(-1) % head_dim == 0, "shardscope::rope: x ", x.sizes(),
              ", tables ", cos.sizes(), ", head ", head_dim);
  Tensor y = fresh(x.sizes());
  const kernels::RopeShape s{rows(x), x.size(1), x.size(-1) / head_dim, head_dim, 2 * cos.size(1), period, turned};
  kernels::rope(in(x, "rope"), in(cos, "rope"), in(sin, "rope"), s, backward, out(y));
  return y;
}

Pair attention(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads, int64_t kv_heads, bool causal,
               double scale) {
  const auto s = shape_of(q, k, heads, kv_heads, causal, scale);
  Tensor y = fresh(q.sizes()), lse = fresh({s.batch, s.heads, s.queries});
  kernels::attention(s, heads_of(q, s.head_dim), heads_of(k, s.head_dim), heads_of(v, s.head_dim),
                     heads_of(y, s.head_dim), out(lse));
  return {y, lse};
}
Triple attention_backward(const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
                          const Tensor& lse, int64_t heads, int64_t kv_heads, bool causal, double scale) {
  const auto s = shape_of(q, k, heads, kv_heads, causal, scale);
  Tensor dq = fresh(q.sizes()), dk = fresh(k.sizes()), dv = fresh(v.sizes());
  kernels::attention_backward(s, heads_of(g, s.head_dim), heads_of(q, s.head_dim), heads_of(k, s.head_dim),
                              heads_of(v, s.head_dim), heads_of(y, s.head_dim), in(lse, "attention_backward"),
                              heads_of(dq, s.head_dim), heads_of(dk, s.head_dim), heads_of(dv, s.head_dim));
  return {dq, dk, dv};
}
Pair attention_packed(const Tensor& qkv, int64_t heads, bool causal, double scale) {
  const int64_t d = qkv.size(-1) / (3 * heads);
  const kernels::AttentionShape s{qkv.size(0), heads, heads,  qkv.size(1),
                                  qkv.size(1), d,     causal, static_cast<float>(scale)};
  Tensor y = fresh(resized_last(qkv, heads * d)), lse = fresh({s.batch, s.heads, s.queries});
  kernels::attention(s, part_of(qkv, d, 0), part_of(qkv, d, 1), part_of(qkv, d, 2), heads_of(y, d), out(lse));
  return {y, lse};
}
Tensor attention_packed_backward(const Tensor& g, const Tensor& qkv, const Tensor& y, const Tensor& lse, int64_t heads,
                                 bool causal, double scale) {
  const int64_t d = qkv.size(-1) / (3 * heads);
  const kernels::AttentionShape s{qkv.size(0), heads, heads,  qkv.size(1),
                                  qkv.size(1), d,     causal, static_cast<float>(scale)};
  Tensor dx = fresh(qkv.sizes());
  kernels::attention_backward(s, heads_of(g, d), part_of(qkv, d, 0), part_of(qkv, d, 1), part_of(qkv, d, 2),
                              heads_of(y, d), in(lse, "attention_packed_backward"), part_of(dx, d, 0),
                              part_of(dx, d, 1), part_of(dx, d, 2));
  return dx;
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  Tensor y = fresh(gate.sizes());
  kernels::swiglu(in(gate, "swiglu"), in(up, "swiglu"), gate.numel(), out(y));
  return y;
}
Pair swiglu_backward(const Tensor& g, const Tensor& gate, const Tensor& up) {
  Tensor d_gate = fresh(gate.sizes()), d_up = fresh(up.sizes());
  kernels::swiglu_backward(in(g, "swiglu_backward"), in(gate, "swiglu_backward"), in(up, "swiglu_backward"),
                           gate.numel(), out(d_gate), out(d_up));
  return {d_gate, d_up};
}
Tensor gelu(const Tensor& x) {
  Tensor y = fresh(x.sizes());
  kernels::gelu(in(x, "gelu"), x.numel(), out(y));
  return y;
}
Tensor gelu_backward(const Tensor& g, const Tensor& x) {
  Tensor dx = fresh(x.sizes());
  kernels::gelu_backward(in(g, "gelu_backward"), in(x, "gelu_backward"), x.numel(), out(dx));
  return dx;
}

Tensor embedding(const Tensor& w, const Tensor& ids) {
  auto sizes = ids.sizes().vec();
  sizes.push_back(w.size(1));
  Tensor y = fresh(sizes);
  kernels::embedding(in(w, "embedding"), ids_of(ids), ids.numel(), w.size(1), out(y));
  return y;
}
Tensor embedding_backward(const Tensor& g, const Tensor& ids, int64_t table_rows) {
  Tensor dw = fresh({table_rows, g.size(-1)});
  kernels::embedding_backward(in(g, "embedding_backward"), ids_of(ids), ids.numel(), g.size(-1), table_rows, out(dw));
  return dw;
}

Pair cross_entropy(const Tensor& logits, const Tensor& targets) {
  TORCH_CHECK(targets.numel() == rows(logits), "shardscope::cross_entropy: ", targets.numel(), " targets for logits ",
              logits.sizes());
  Tensor loss = fresh({}), lse = fresh({rows(logits)});
  *out(loss) =
      kernels::cross_entropy(in(logits, "cross_entropy"), ids_of(targets), rows(logits), logits.size(-1), out(lse));
  return {loss, lse};
}
Tensor cross_entropy_backward(const Tensor& g, const Tensor& logits, const Tensor& targets, const Tensor& lse) {
  Tensor d = fresh(logits.sizes());
  kernels::cross_entropy_backward(*in(g, "cross_entropy_backward"), in(logits, "cross_entropy_backward"),
                                  ids_of(targets), in(lse, "cross_entropy_backward"), rows(logits), logits.size(-1),
                                  out(d));
  return d;
}

void add_(const Tensor& into, const Tensor& from) { kernels::add(out(into), in(from, "add_"), into.numel()); }

double adamw_(const Tensor& p, const Tensor& g, const Tensor& m, const Tensor& v, double lr, double beta1, double beta2,
              double eps, double weight_decay, int64_t step) {
  const auto f = [](double x) { return static_cast<float>(x); };
  const auto t = static_cast<double>(step);
  const kernels::AdamW a{
      f(lr), f(beta1), f(beta2), f(eps), f(weight_decay), f(1.0 - std::pow(beta1, t)), f(1.0 - std::pow(beta2, t))};
  return kernels::adamw(a, p.numel(), in(g, "adamw_"), out(p), out(m), out(v));
}
double sgd_(const Tensor& p, const Tensor& g, double lr) {
  return kernels::sgd(static_cast<float>(lr), p.numel(), in(g, "sgd_"), out(p));
}
void pack_(const Tensor& flat, int64_t at, const Tensor& from, bool add) {
  float* to = out(flat) + at;
  if (add)
    kernels::add(to, in(from, "pack_"), from.numel());
  else
    std::memcpy(to, in(from, "pack_"), static_cast<std::size_t>(from.numel()) * sizeof(float));
}

}  // namespace fsdp::ops::host
