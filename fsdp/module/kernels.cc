#include "fsdp/module/kernels.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "fsdp/core/errors.h"
#include "fsdp/module/kernels_table.h"

namespace fsdp::kernels {

#if defined(__x86_64__)
namespace avx512 {
extern const Table kTable;
}
namespace avx2 {
extern const Table kTable;
}
#endif
namespace baseline {
extern const Table kTable;
}

namespace {

struct Choice {
  const Table* table;
  std::string_view name;
};

Choice choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    return {&avx512::kTable, "avx512"};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {&avx2::kTable, "avx2"};
#endif
  return {&baseline::kTable, "baseline"};
}

const Choice& choice() {
  static const Choice c = choose();
  return c;
}
const Table& table() { return *choice().table; }

// Per thread, grows, never shrinks while the thread lives. Not part of what the meter counts: kernel workspace.
float* workspace(std::vector<float>& v, Index n) {
  constexpr Index kAlign = 16;  // floats: one cache line
  if (static_cast<Index>(v.size()) < n + kAlign) v.resize(static_cast<std::size_t>(n + kAlign));
  const auto at = reinterpret_cast<std::uintptr_t>(v.data());
  return reinterpret_cast<float*>((at + 63) / 64 * 64);
}
float* gemm_workspace() {
  static thread_local std::vector<float> v;
  return workspace(v, kGemmScratch);
}
float* attention_workspace(const AttentionShape& s) {
  static thread_local std::vector<float> v;
  return workspace(v, attention_scratch(s));
}

}  // namespace

std::string_view instruction_set() { return choice().name; }

void gemm(bool a_transposed, bool b_transposed, Index m, Index n, Index k, const float* a, Index lda, const float* b,
          Index ldb, float* c, Index ldc, bool accumulate) {
  table().gemm(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, accumulate, gemm_workspace());
}
void add_rows(float* y, const float* bias, Index rows, Index cols) { table().add_rows(y, bias, rows, cols); }
void column_sums(const float* g, Index rows, Index cols, float* out) { table().column_sums(g, rows, cols, out); }
void add(float* into, const float* from, Index n) { table().add(into, from, n); }

void rms_norm(const float* x, const float* w, Index rows, Index d, float eps, float* y, float* rstd) {
  table().rms_norm(x, w, rows, d, eps, y, rstd);
}
void rms_norm_backward(const float* g, const float* x, const float* rstd, const float* w, Index rows, Index d,
                       float* dx, float* dw) {
  table().rms_norm_backward(g, x, rstd, w, rows, d, dx, dw);
}
void layer_norm(const float* x, const float* w, const float* b, Index rows, Index d, float eps, float* y, float* mean,
                float* rstd) {
  table().layer_norm(x, w, b, rows, d, eps, y, mean, rstd);
}
void layer_norm_backward(const float* g, const float* x, const float* mean, const float* rstd, const float* w,
                         Index rows, Index d, float* dx, float* dw, float* db) {
  table().layer_norm_backward(g, x, mean, rstd, w, rows, d, dx, dw, db);
}
void rope(const float* x, const float* cos, const float* sin, const RopeShape& s, bool backward, float* y) {
  table().rope(x, cos, sin, s, backward, y);
}
void swiglu(const float* gate, const float* up, Index n, float* y) { table().swiglu(gate, up, n, y); }
void swiglu_backward(const float* g, const float* gate, const float* up, Index n, float* d_gate, float* d_up) {
  table().swiglu_backward(g, gate, up, n, d_gate, d_up);
}
void gelu(const float* x, Index n, bool by_tanh, float* y) { table().gelu(x, n, by_tanh, y); }
void gelu_backward(const float* g, const float* x, Index n, bool by_tanh, float* dx) {
  table().gelu_backward(g, x, n, by_tanh, dx);
}

void attention(const AttentionShape& s, const HeadView& q, const HeadView& k, const HeadView& v, const float* bias,
               const HeadView& out, float* lse) {
  table().attention(s, q, k, v, bias, out, lse, attention_workspace(s), gemm_workspace());
}
void attention_backward(const AttentionShape& s, const HeadView& g, const HeadView& q, const HeadView& k,
                        const HeadView& v, const float* bias, const HeadView& out, const float* lse, const HeadView& dq,
                        const HeadView& dk, const HeadView& dv, float* d_bias) {
  table().attention_backward(s, g, q, k, v, bias, out, lse, dq, dk, dv, d_bias, attention_workspace(s),
                             gemm_workspace());
}

void embedding_backward(const float* g, const Index* ids, Index n, Index d, Index table_rows, float* d_table) {
  std::memset(d_table, 0, static_cast<std::size_t>(table_rows * d) * sizeof(float));
  for (Index i = 0; i < n; ++i) add(d_table + ids[i] * d, g + i * d, d);
}
float cross_entropy(const float* logits, const Index* targets, Index rows, Index classes, float* lse) {
  for (Index i = 0; i < rows; ++i)
    SHARDSCOPE_CHECK(targets[i] >= 0 && targets[i] < classes, "target " + std::to_string(targets[i]));
  return table().cross_entropy(logits, targets, rows, classes, lse);
}
void cross_entropy_backward(float g, const float* logits, const Index* targets, const float* lse, Index rows,
                            Index classes, float* d_logits) {
  table().cross_entropy_backward(g, logits, targets, lse, rows, classes, d_logits);
}

double adamw(const AdamW& a, Index n, const float* g, float* p, float* m, float* v) {
  return table().adamw(a, n, g, p, m, v);
}
double sgd(float lr, Index n, const float* g, float* p) { return table().sgd(lr, n, g, p); }
double square_sum(const float* x, Index n) { return table().square_sum(x, n); }
void to_float(const std::uint16_t* x, Index n, float* y) { table().to_float(x, n, y); }
void to_bfloat16(const float* x, Index n, std::uint16_t* y) { table().to_bfloat16(x, n, y); }
void uniform_weights(std::uint64_t seed, std::uint64_t index, Index begin, Index end, float* out) {
  table().uniform_weights(seed, index, begin, end, out);
}

}  // namespace fsdp::kernels
