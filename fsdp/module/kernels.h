// Hot loops of the models and of the sharded optimizer on host memory: fp32, row-major, one thread, deterministic.
// Plain C++, no torch. Each is compiled for three instruction sets (AVX-512, AVX2 with FMA, baseline); the best one
// that the processor has is chosen once. The same processor gives the same bits; different ones may differ in the last
// place.
#pragma once
#include <cstdint>
#include <string_view>

namespace fsdp::kernels {

using Index = std::int64_t;

// Where one of q, k, v, out (or its gradient) of an attention lies: element (b, t, h, d) is
// data[(b * steps + t) * row + h * head + d], `steps` the tensor's own sequence length.
struct HeadView {
  float* data = nullptr;
  Index row = 0;   // elements from one position to the next
  Index head = 0;  // elements from one head to the next
};
struct AttentionShape {
  Index batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, head_dim = 0;
  bool causal = true;  // query t sees keys up to t + keys - queries
  float scale = 1.0f;
};

// Rotary embedding: a row (one position of one sample) consists of chunks of `chunk` elements; of every `period` chunks
// the first `turned` are rotated in their first `rotary` elements by the tables' row of the position.
struct RopeShape {
  Index rows = 0, steps = 0, chunks = 0, chunk = 0, rotary = 0, period = 1, turned = 1;
};

struct AdamW {
  float lr = 1e-3f, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0.1f;
  float correction1 = 1.0f, correction2 = 1.0f;  // 1 - beta^t
  float gradient_scale = 1.0f;                   // below 1 when clipping
};

// The chosen instruction set: "avx512", "avx2", "baseline".
std::string_view instruction_set();

// C = op(A) op(B), or C += if `accumulate`. op transposes what is stored as [k, m] (A) or [n, k] (B).
void gemm(bool a_transposed, bool b_transposed, Index m, Index n, Index k, const float* a, Index lda, const float* b,
          Index ldb, float* c, Index ldc, bool accumulate);
void add_rows(float* y, const float* bias, Index rows, Index cols);
void column_sums(const float* g, Index rows, Index cols, float* out);
void add(float* into, const float* from, Index n);

void rms_norm(const float* x, const float* w, Index rows, Index d, float eps, float* y, float* rstd);
void rms_norm_backward(const float* g, const float* x, const float* rstd, const float* w, Index rows, Index d,
                       float* dx, float* dw);
void layer_norm(const float* x, const float* w, const float* b, Index rows, Index d, float eps, float* y, float* mean,
                float* rstd);
void layer_norm_backward(const float* g, const float* x, const float* mean, const float* rstd, const float* w,
                         Index rows, Index d, float* dx, float* dw, float* db);
// `cos`, `sin`: [steps, rotary / 2]. `backward` turns the other way. y may be x.
void rope(const float* x, const float* cos, const float* sin, const RopeShape& s, bool backward, float* y);
void swiglu(const float* gate, const float* up, Index n, float* y);
void swiglu_backward(const float* g, const float* gate, const float* up, Index n, float* d_gate, float* d_up);
// With erf, or by its approximation with tanh.
void gelu(const float* x, Index n, bool by_tanh, float* y);
void gelu_backward(const float* g, const float* x, Index n, bool by_tanh, float* dx);

// Softmax(scale q k^T + bias) v, heads of q in groups over the kv heads. lse: [batch, heads, queries]; bias:
// [heads, queries, keys], the same for every sample, or null; d_bias as bias.
void attention(const AttentionShape& s, const HeadView& q, const HeadView& k, const HeadView& v, const float* bias,
               const HeadView& out, float* lse);
void attention_backward(const AttentionShape& s, const HeadView& g, const HeadView& q, const HeadView& k,
                        const HeadView& v, const float* bias, const HeadView& out, const float* lse, const HeadView& dq,
                        const HeadView& dk, const HeadView& dv, float* d_bias);

void embedding_backward(const float* g, const Index* ids, Index n, Index d, Index table_rows, float* d_table);
// Mean of -log softmax(logits)[target] over the rows. lse: [rows].
float cross_entropy(const float* logits, const Index* targets, Index rows, Index classes, float* lse);
void cross_entropy_backward(float g, const float* logits, const Index* targets, const float* lse, Index rows,
                            Index classes, float* d_logits);

// Both return the sum of squares of g, before gradient_scale.
double adamw(const AdamW& a, Index n, const float* g, float* p, float* m, float* v);
double sgd(float lr, Index n, const float* g, float* p);
double square_sum(const float* x, Index n);
// bf16 as its 16 bits; rounds to the nearest, ties to even.
void to_float(const std::uint16_t* x, Index n, float* y);
void to_bfloat16(const float* x, Index n, std::uint16_t* y);

// Elements [begin, end) of parameter `index` by the counter-based rule of tests/data/goldens/README.md.
void uniform_weights(std::uint64_t seed, std::uint64_t index, Index begin, Index end, float* out);

}  // namespace fsdp::kernels
