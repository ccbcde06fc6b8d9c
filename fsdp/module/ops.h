// The operators of the models: one body each for host memory, CUDA (by LibTorch's own operators) and meta. All are
// registered with the dispatcher in namespace `shardscope`, so that observers, profilers and the virtual clock see
// them as leaves; host and meta make the same sequence of allocations. Activations are [batch, steps, width],
// contiguous, fp32 or bf16; where operands differ the result is fp32. On the host bf16 is a storage type: arithmetic is
// fp32, rounded once per operator.
//
// What a norm or an activation makes is not kept for a linear() that reads it, if RemakeScope says so: backward makes
// it again, to the same bits, from what the norm's or the activation's own backward keeps and, of a norm, a copy of its
// weight and bias. Each norm makes that copy, whether a linear() reads it or not.
//
// A tensor with two readers goes through fork(): LibTorch's engine adds two gradients of one tensor in place on the
// host but out of place on meta, and the worlds would differ by one buffer.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace fsdp::ops {

// Whether operators of this thread prefer making again to keeping; without a scope they do.
class RemakeScope {
 public:
  explicit RemakeScope(bool on);
  ~RemakeScope();
  RemakeScope(const RemakeScope&) = delete;
  RemakeScope& operator=(const RemakeScope&) = delete;

 private:
  const bool before_;
};

// x W^T (+ b), or with `in_out` x W; `b` may be undefined. Saves x, w.
at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, bool in_out = false);
// x / rms(x) * w over the last dimension. Saves x, w, 1/rms.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w, double eps);
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, double eps);

// Rotary position embedding over chunks of `head_dim` of the last dimension, of every `period` chunks the first
// `turned`: y cos + cat(-y2, y1) sin over the halves of the chunk's first `rotary` elements; the rest is copied. cos,
// sin: [steps, rotary / 2], fp32. Saves the tables.
struct RopePattern {
  std::int64_t head_dim = 0, period = 1, turned = 1;
};
at::Tensor rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, const RopePattern& pattern);

struct AttentionOptions {
  std::int64_t heads = 1, kv_heads = 1;
  bool causal = true;
  double scale = 1.0;
};
// q: [batch, steps, heads * head_dim]; k, v: [batch, keys, kv_heads * head_dim]. Saves q, k, v, out and the
// log-sum-exp; never a matrix of scores. `bias`: [heads, steps, keys], added to the scores; may be undefined.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& o,
                     const at::Tensor& bias = {});
// qkv in one tensor: [batch, steps, heads, 3, head_dim] (GPT-NeoX), or without `by_head` [batch, steps, 3, heads,
// head_dim] (GPT-2); kv_heads is not used.
at::Tensor attention_packed(const at::Tensor& qkv, const AttentionOptions& o, bool by_head = true);

// A row of the table [buckets, heads] for each distance between a query and a key: [heads, queries, keys], by T5's
// buckets: one for each near distance, then logarithmic up to `far`; half of them for keys behind the query if
// `both_ways`, else those share the first.
struct RelativeOptions {
  std::int64_t queries = 0, keys = 0, far = 128;
  bool both_ways = true;
};
at::Tensor relative_bias(const at::Tensor& table, const RelativeOptions& o);

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);  // silu(gate) * up. Saves both.
at::Tensor gelu(const at::Tensor& x, bool by_tanh = false);       // with erf, or approximated. Saves x.
at::Tensor relu(const at::Tensor& x);                             // Saves the result.
at::Tensor mean_steps(const at::Tensor& x);                       // [batch, steps, width] -> [batch, width]
at::Tensor embedding(const at::Tensor& w, const at::Tensor& ids);
// Mean over all rows of -log softmax(logits)[target]. Saves logits, targets and the log-sum-exp.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

// The same values in another floating type; the gradient comes back in x's. x itself if it has the type.
at::Tensor cast(const at::Tensor& x, at::ScalarType dtype);
// x, in the graph: `done` is called when the gradients of all of `inputs` are there, before anything that made them.
void on_backward_through(std::vector<at::Tensor>& inputs, std::function<void()> done);

// `n` readers of one tensor; their gradients are added, in place where a buffer is solely owned.
std::vector<at::Tensor> fork(const at::Tensor& x, int n);

// ---- without autograd: the runtime's own work on flat buffers

struct AdamWOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};
// One step on flat fp32 tensors; `step` counts from 1; the gradient is taken times `gradient_scale`. Both return the
// sum of squares of the gradient before that (0 on meta).
double adamw_(const at::Tensor& p, const at::Tensor& g, const at::Tensor& m, const at::Tensor& v, const AdamWOptions& o,
              std::int64_t step, double gradient_scale = 1.0);
double sgd_(const at::Tensor& p, const at::Tensor& g, double lr);
double square_sum(const at::Tensor& x);

// Copies (adds) `total` elements of `from` to `to`, both contiguous, in pieces of `piece` elements, the last one
// shorter: piece i from from_at + i * from_stride to to_at + i * to_stride. Types are converted.
struct Move {
  std::int64_t to_at = 0, to_stride = 0, from_at = 0, from_stride = 0, piece = 0, total = 0;
  bool add = false;
};
void move_(const at::Tensor& to, const at::Tensor& from, const Move& m);

}  // namespace fsdp::ops
