// Host bodies: contiguous tensors, by the loops of kernels.h in fp32. A bf16 operand is widened before and rounded
// after; that scratch, like a kernel's own, does not pass through the tensor allocator, as a CUDA kernel's does not.
#include <algorithm>
#include <array>
#include <memory>

#include "fsdp/module/kernels.h"
#include "fsdp/module/op_bodies.h"

namespace fsdp::ops::host {
namespace {

float* floats(const Tensor& t) { return t.mutable_data_ptr<float>(); }
std::uint16_t* halves(const Tensor& t) { return static_cast<std::uint16_t*>(t.mutable_data_ptr()); }
bool is_half(const Tensor& t) { return t.scalar_type() == at::kBFloat16; }

// fp32 views of the tensors that one operator reads and writes. What is written reaches a bf16 tensor at the end.
class Operands {
 public:
  explicit Operands(const char* name) : name_(name) {}
  ~Operands() {
    for (std::size_t i = 0; i < written_; ++i) kernels::to_bfloat16(writes_[i].from, writes_[i].n, writes_[i].to);
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  const float* in(const Tensor& t) {
    TORCH_CHECK((t.scalar_type() == at::kFloat || is_half(t)) && t.is_contiguous(), "shardscope::", name_,
                " on the host takes contiguous fp32 or bf16 tensors, not ", t.scalar_type(), " with strides ",
                t.strides());
    if (!is_half(t)) return t.const_data_ptr<float>();
    float* wide = scratch(t.numel());
    kernels::to_float(static_cast<const std::uint16_t*>(t.const_data_ptr()), t.numel(), wide);
    return wide;
  }
  float* out(const Tensor& t) {
    if (!is_half(t)) return floats(t);
    float* wide = scratch(t.numel());
    writes_.at(written_++) = {wide, halves(t), t.numel()};
    return wide;
  }
  float* in_out(const Tensor& t) {
    float* const p = const_cast<float*>(in(t));
    if (is_half(t)) writes_.at(written_++) = {p, halves(t), t.numel()};
    return p;
  }

 private:
  struct Write {
    const float* from;
    std::uint16_t* to;
    int64_t n;
  };
  // Per thread, by position in the operator; grows and stays.
  float* scratch(int64_t n) {
    struct Slot {
      std::unique_ptr<float[]> memory;
      int64_t size = 0;
    };
    static thread_local std::array<Slot, 12> slots;
    Slot& s = slots.at(taken_++);
    if (s.size < n) s = {std::unique_ptr<float[]>(new float[static_cast<std::size_t>(n)]), n};
    return s.memory.get();
  }

  const char* const name_;
  std::size_t taken_ = 0, written_ = 0;
  std::array<Write, 4> writes_{};
};

const int64_t* ids_of(const Tensor& t) {
  TORCH_CHECK(t.scalar_type() == at::kLong && t.is_contiguous(), "shardscope: ids must be contiguous int64");
  return t.const_data_ptr<int64_t>();
}
Tensor fresh(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) { return at::detail::empty_cpu(sizes, dtype); }
Tensor fresh(at::IntArrayRef sizes, const Tensor& like) { return fresh(sizes, like.scalar_type()); }
int64_t rows(const Tensor& x) { return x.size(-1) == 0 ? 0 : x.numel() / x.size(-1); }

kernels::AttentionShape shape_of(const Tensor& q, const Tensor& k, int64_t heads, int64_t kv_heads, bool causal,
                                 double scale) {
  TORCH_CHECK(heads % kv_heads == 0 && q.size(-1) % heads == 0, "shardscope::attention: ", heads, " heads over ",
              kv_heads, " in a width of ", q.size(-1));
  return {q.size(0), heads, kv_heads, q.size(1), k.size(1), q.size(-1) / heads, causal, static_cast<float>(scale)};
}
void check_bias(const kernels::AttentionShape& s, const OptTensor& bias) {
  TORCH_CHECK(!bias || bias->sizes() == at::IntArrayRef({s.heads, s.queries, s.keys}), "shardscope::attention: bias ",
              bias->sizes(), " for ", s.heads, " heads, ", s.queries, " queries and ", s.keys, " keys");
}
kernels::AttentionShape packed_shape(const Tensor& qkv, int64_t heads, bool causal, double scale) {
  return {qkv.size(0), heads,
          heads,       qkv.size(1),
          qkv.size(1), qkv.size(-1) / (3 * heads),
          causal,      static_cast<float>(scale)};
}
kernels::HeadView heads_of(const float* p, const Tensor& t, int64_t head_dim) {
  return {const_cast<float*>(p), t.size(-1), head_dim};
}
kernels::HeadView part_of(const float* p, const Tensor& packed, int64_t head_dim, int part, bool by_head) {
  const int64_t width = packed.size(-1);
  const int64_t at = by_head ? part * head_dim : part * (width / 3);
  return {const_cast<float*>(p) + at, width, by_head ? 3 * head_dim : head_dim};
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& w, const OptTensor& b, bool in_out) {
  const int64_t m = rows(x), k = x.size(-1), n = w.size(in_out ? 1 : 0);
  TORCH_CHECK(w.dim() == 2 && w.size(in_out ? 0 : 1) == k, "shardscope::linear: x ", x.sizes(), ", w ", w.sizes());
  Tensor y = fresh(resized_last(x, n), promoted(x, w));
  Operands o("linear");
  float* const to = o.out(y);
  kernels::gemm(false, !in_out, m, n, k, o.in(x), k, o.in(w), in_out ? n : k, to, n, false);
  if (b && b->defined()) kernels::add_rows(to, o.in(*b), m, n);
  return y;
}
Triple linear_backward(const Tensor& g, const Tensor& x, const Tensor& w, bool bias, bool in_out) {
  const int64_t m = rows(x), k = x.size(-1), n = w.size(in_out ? 1 : 0);
  Tensor dx = fresh(x.sizes(), x), dw = fresh(w.sizes(), w), db = bias ? fresh({n}, w) : Tensor();
  Operands o("linear_backward");
  const float* const gp = o.in(g);
  kernels::gemm(false, in_out, m, k, n, gp, n, o.in(w), in_out ? n : k, o.out(dx), k, false);
  if (in_out)
    kernels::gemm(true, false, k, n, m, o.in(x), k, gp, n, o.out(dw), n, false);
  else
    kernels::gemm(true, false, n, k, m, gp, n, o.in(x), k, o.out(dw), k, false);
  if (bias) kernels::column_sums(gp, m, n, o.out(db));
  return {dx, dw, db};
}

Pair rms_norm(const Tensor& x, const Tensor& w, double eps) {
  Tensor y = fresh(x.sizes(), promoted(x, w)), rstd = fresh(rows_of(x));
  Operands o("rms_norm");
  kernels::rms_norm(o.in(x), o.in(w), rows(x), x.size(-1), static_cast<float>(eps), o.out(y), o.out(rstd));
  return {y, rstd};
}
Pair rms_norm_backward(const Tensor& g, const Tensor& x, const Tensor& rstd, const Tensor& w) {
  Tensor dx = fresh(x.sizes(), x), dw = fresh(w.sizes(), w);
  Operands o("rms_norm_backward");
  kernels::rms_norm_backward(o.in(g), o.in(x), o.in(rstd), o.in(w), rows(x), x.size(-1), o.out(dx), o.out(dw));
  return {dx, dw};
}

Triple layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  Tensor y = fresh(x.sizes(), promoted(x, w)), mean = fresh(rows_of(x)), rstd = fresh(rows_of(x));
  Operands o("layer_norm");
  kernels::layer_norm(o.in(x), o.in(w), o.in(b), rows(x), x.size(-1), static_cast<float>(eps), o.out(y), o.out(mean),
                      o.out(rstd));
  return {y, mean, rstd};
}
Triple layer_norm_backward(const Tensor& g, const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& w) {
  Tensor dx = fresh(x.sizes(), x), dw = fresh(w.sizes(), w), db = fresh(w.sizes(), w);
  Operands o("layer_norm_backward");
  kernels::layer_norm_backward(o.in(g), o.in(x), o.in(mean), o.in(rstd), o.in(w), rows(x), x.size(-1), o.out(dx),
                               o.out(dw), o.out(db));
  return {dx, dw, db};
}

Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t head_dim, int64_t period, int64_t turned,
            bool backward) {
  TORCH_CHECK(x.dim() == 3 && cos.size(0) >= x.size(1) && x.size(-1) % head_dim == 0, "shardscope::rope: x ", x.sizes(),
              ", tables ", cos.sizes(), ", head ", head_dim);
  Tensor y = fresh(x.sizes(), x);
  const kernels::RopeShape s{rows(x), x.size(1), x.size(-1) / head_dim, head_dim, 2 * cos.size(1), period, turned};
  Operands o("rope");
  kernels::rope(o.in(x), o.in(cos), o.in(sin), s, backward, o.out(y));
  return y;
}

Pair attention(const Tensor& q, const Tensor& k, const Tensor& v, const OptTensor& bias, int64_t heads,
               int64_t kv_heads, bool causal, double scale) {
  const auto s = shape_of(q, k, heads, kv_heads, causal, scale);
  check_bias(s, bias);
  Tensor y = fresh(q.sizes(), q), lse = fresh({s.batch, s.heads, s.queries});
  Operands o("attention");
  kernels::attention(s, heads_of(o.in(q), q, s.head_dim), heads_of(o.in(k), k, s.head_dim),
                     heads_of(o.in(v), v, s.head_dim), bias ? o.in(*bias) : nullptr, heads_of(o.out(y), y, s.head_dim),
                     o.out(lse));
  return {y, lse};
}
Quad attention_backward(const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v, const OptTensor& bias,
                        const Tensor& y, const Tensor& lse, int64_t heads, int64_t kv_heads, bool causal,
                        double scale) {
  const auto s = shape_of(q, k, heads, kv_heads, causal, scale);
  const int64_t d = s.head_dim;
  Tensor dq = fresh(q.sizes(), q), dk = fresh(k.sizes(), k), dv = fresh(v.sizes(), v);
  Tensor d_bias = bias ? fresh(bias->sizes(), *bias) : Tensor();
  Operands o("attention_backward");
  kernels::attention_backward(s, heads_of(o.in(g), g, d), heads_of(o.in(q), q, d), heads_of(o.in(k), k, d),
                              heads_of(o.in(v), v, d), bias ? o.in(*bias) : nullptr, heads_of(o.in(y), y, d), o.in(lse),
                              heads_of(o.out(dq), dq, d), heads_of(o.out(dk), dk, d), heads_of(o.out(dv), dv, d),
                              bias ? o.out(d_bias) : nullptr);
  return {dq, dk, dv, d_bias};
}
Pair attention_packed(const Tensor& qkv, int64_t heads, bool causal, double scale, bool by_head) {
  const auto s = packed_shape(qkv, heads, causal, scale);
  const int64_t d = s.head_dim;
  Tensor y = fresh(resized_last(qkv, heads * d), qkv), lse = fresh({s.batch, s.heads, s.queries});
  Operands o("attention_packed");
  const float* const p = o.in(qkv);
  kernels::attention(s, part_of(p, qkv, d, 0, by_head), part_of(p, qkv, d, 1, by_head), part_of(p, qkv, d, 2, by_head),
                     nullptr, heads_of(o.out(y), y, d), o.out(lse));
  return {y, lse};
}
Tensor attention_packed_backward(const Tensor& g, const Tensor& qkv, const Tensor& y, const Tensor& lse, int64_t heads,
                                 bool causal, double scale, bool by_head) {
  const auto s = packed_shape(qkv, heads, causal, scale);
  const int64_t d = s.head_dim;
  Tensor dx = fresh(qkv.sizes(), qkv);
  Operands o("attention_packed_backward");
  const float* const p = o.in(qkv);
  float* const to = o.out(dx);
  const auto part = [&](const float* at, int which) { return part_of(at, qkv, d, which, by_head); };
  kernels::attention_backward(s, heads_of(o.in(g), g, d), part(p, 0), part(p, 1), part(p, 2), nullptr,
                              heads_of(o.in(y), y, d), o.in(lse), part(to, 0), part(to, 1), part(to, 2), nullptr);
  return dx;
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  Tensor y = fresh(gate.sizes(), gate);
  Operands o("swiglu");
  kernels::swiglu(o.in(gate), o.in(up), gate.numel(), o.out(y));
  return y;
}
Pair swiglu_backward(const Tensor& g, const Tensor& gate, const Tensor& up) {
  Tensor d_gate = fresh(gate.sizes(), gate), d_up = fresh(up.sizes(), up);
  Operands o("swiglu_backward");
  kernels::swiglu_backward(o.in(g), o.in(gate), o.in(up), gate.numel(), o.out(d_gate), o.out(d_up));
  return {d_gate, d_up};
}
Tensor gelu(const Tensor& x, bool by_tanh) {
  Tensor y = fresh(x.sizes(), x);
  Operands o("gelu");
  kernels::gelu(o.in(x), x.numel(), by_tanh, o.out(y));
  return y;
}
Tensor gelu_backward(const Tensor& g, const Tensor& x, bool by_tanh) {
  Tensor dx = fresh(x.sizes(), x);
  Operands o("gelu_backward");
  kernels::gelu_backward(o.in(g), o.in(x), x.numel(), by_tanh, o.out(dx));
  return dx;
}
Tensor relu(const Tensor& x) {
  Tensor y = fresh(x.sizes(), x);
  Operands o("relu");
  const float* const from = o.in(x);
  float* const to = o.out(y);
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] > 0.0f ? from[i] : 0.0f;
  return y;
}
Tensor relu_backward(const Tensor& g, const Tensor& y) {
  Tensor dx = fresh(y.sizes(), y);
  Operands o("relu_backward");
  const float *const from = o.in(g), *const result = o.in(y);
  float* const to = o.out(dx);
  for (int64_t i = 0; i < y.numel(); ++i) to[i] = result[i] > 0.0f ? from[i] : 0.0f;
  return dx;
}

Tensor embedding(const Tensor& w, const Tensor& ids) {
  auto sizes = ids.sizes().vec();
  sizes.push_back(w.size(1));
  Tensor y = fresh(sizes, w);
  const int64_t* const row = ids_of(ids);
  const std::size_t row_bytes = static_cast<std::size_t>(w.size(1)) * w.element_size();
  const auto* const from = static_cast<const std::byte*>(w.const_data_ptr());
  auto* const to = static_cast<std::byte*>(y.mutable_data_ptr());
  for (int64_t i = 0; i < ids.numel(); ++i)
    std::memcpy(to + static_cast<std::size_t>(i) * row_bytes, from + static_cast<std::size_t>(row[i]) * row_bytes,
                row_bytes);
  return y;
}
Tensor embedding_backward(const Tensor& g, const Tensor& ids, int64_t table_rows) {
  Tensor dw = fresh({table_rows, g.size(-1)}, g);
  Operands o("embedding_backward");
  kernels::embedding_backward(o.in(g), ids_of(ids), ids.numel(), g.size(-1), table_rows, o.out(dw));
  return dw;
}

Pair cross_entropy(const Tensor& logits, const Tensor& targets) {
  TORCH_CHECK(targets.numel() == rows(logits), "shardscope::cross_entropy: ", targets.numel(), " targets for logits ",
              logits.sizes());
  Tensor loss = fresh({}), lse = fresh({rows(logits)});
  Operands o("cross_entropy");
  *floats(loss) = kernels::cross_entropy(o.in(logits), ids_of(targets), rows(logits), logits.size(-1), o.out(lse));
  return {loss, lse};
}
Tensor cross_entropy_backward(const Tensor& g, const Tensor& logits, const Tensor& targets, const Tensor& lse) {
  Tensor d = fresh(logits.sizes(), logits);
  Operands o("cross_entropy_backward");
  kernels::cross_entropy_backward(*o.in(g), o.in(logits), ids_of(targets), o.in(lse), rows(logits), logits.size(-1),
                                  o.out(d));
  return d;
}

void add_(const Tensor& into, const Tensor& from) {
  Operands o("add_");
  kernels::add(o.in_out(into), o.in(from), into.numel());
}
Tensor cast(const Tensor& x, at::ScalarType dtype) {
  Tensor y = fresh(x.sizes(), dtype);
  if (dtype == at::kFloat)
    kernels::to_float(halves(x), x.numel(), floats(y));
  else
    kernels::to_bfloat16(floats(x), x.numel(), halves(y));
  return y;
}

double adamw_(const Tensor& p, const Tensor& g, const Tensor& m, const Tensor& v, double lr, double beta1, double beta2,
              double eps, double weight_decay, int64_t step, double gradient_scale) {
  const auto f = [](double x) { return static_cast<float>(x); };
  const auto t = static_cast<double>(step);
  const kernels::AdamW a{f(lr),
                         f(beta1),
                         f(beta2),
                         f(eps),
                         f(weight_decay),
                         f(1.0 - std::pow(beta1, t)),
                         f(1.0 - std::pow(beta2, t)),
                         f(gradient_scale)};
  return kernels::adamw(a, p.numel(), floats(g), floats(p), floats(m), floats(v));
}
double sgd_(const Tensor& p, const Tensor& g, double lr) {
  return kernels::sgd(static_cast<float>(lr), p.numel(), floats(g), floats(p));
}
double square_sum(const Tensor& x) { return kernels::square_sum(floats(x), x.numel()); }

namespace {

// One piece of move_(): n elements, types converted, sums in fp32.
void move_piece(std::byte* to, bool to_half, const std::byte* from, bool from_half, int64_t n, bool add) {
  if (!add && to_half == from_half) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * (to_half ? 2 : 4));
    return;
  }
  constexpr int64_t kBlock = 1024;
  std::array<float, kBlock> wide_to, wide_from;
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t m = std::min(kBlock, n - at);
    const auto* source = reinterpret_cast<const float*>(from) + at;
    if (from_half) {
      kernels::to_float(reinterpret_cast<const std::uint16_t*>(from) + at, m, wide_from.data());
      source = wide_from.data();
    }
    if (!to_half) {
      float* const target = reinterpret_cast<float*>(to) + at;
      if (add)
        kernels::add(target, source, m);
      else
        std::copy_n(source, m, target);
      continue;
    }
    auto* const target = reinterpret_cast<std::uint16_t*>(to) + at;
    if (add) {
      kernels::to_float(target, m, wide_to.data());
      kernels::add(wide_to.data(), source, m);
      source = wide_to.data();
    }
    kernels::to_bfloat16(source, m, target);
  }
}

}  // namespace

void move_(const Tensor& to, int64_t to_at, int64_t to_stride, const Tensor& from, int64_t from_at, int64_t from_stride,
           int64_t piece, int64_t total, bool add) {
  TORCH_CHECK(from.is_contiguous() && to.is_contiguous(), "shardscope::move_ takes contiguous tensors");
  if (total == 0) return;
  const int64_t to_size = is_half(to) ? 2 : 4, from_size = is_half(from) ? 2 : 4;
  auto* const target = static_cast<std::byte*>(to.mutable_data_ptr());
  const auto* const source = static_cast<const std::byte*>(from.const_data_ptr());
  for (int64_t i = 0; i * piece < total; ++i)
    move_piece(target + (to_at + i * to_stride) * to_size, is_half(to),
               source + (from_at + i * from_stride) * from_size, is_half(from), std::min(piece, total - i * piece),
               add);
}

}  // namespace fsdp::ops::host
