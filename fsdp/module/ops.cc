#include "fsdp/module/ops.h"

#include "fsdp/module/op_bodies.h"
#include "fsdp/module/recipe.h"

TORCH_LIBRARY(shardscope, m) {
  m.def("linear(Tensor x, Tensor w, Tensor? b, bool in_out) -> Tensor");
  m.def("linear_backward(Tensor g, Tensor x, Tensor w, bool bias, bool in_out) -> (Tensor, Tensor, Tensor)");
  m.def("rms_norm(Tensor x, Tensor w, float eps) -> (Tensor, Tensor)");
  m.def("rms_norm_backward(Tensor g, Tensor x, Tensor rstd, Tensor w) -> (Tensor, Tensor)");
  m.def("layer_norm(Tensor x, Tensor w, Tensor b, float eps) -> (Tensor, Tensor, Tensor)");
  m.def("layer_norm_backward(Tensor g, Tensor x, Tensor mean, Tensor rstd, Tensor w) -> (Tensor, Tensor, Tensor)");
  m.def("rope(Tensor x, Tensor cos, Tensor sin, int head_dim, int period, int turned, bool backward) -> Tensor");
  m.def(
      "attention(Tensor q, Tensor k, Tensor v, Tensor? bias, int heads, int kv_heads, bool causal, float scale) -> "
      "(Tensor, Tensor)");
  m.def(
      "attention_backward(Tensor g, Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor out, Tensor lse, int heads, "
      "int kv_heads, bool causal, float scale) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def("attention_packed(Tensor qkv, int heads, bool causal, float scale, bool by_head) -> (Tensor, Tensor)");
  m.def(
      "attention_packed_backward(Tensor g, Tensor qkv, Tensor out, Tensor lse, int heads, bool causal, float scale, "
      "bool by_head) -> Tensor");
  m.def("relative_bias(Tensor table, int queries, int keys, bool both_ways, int far) -> Tensor");
  m.def("relative_bias_backward(Tensor g, int buckets, bool both_ways, int far) -> Tensor");
  m.def("swiglu(Tensor gate, Tensor up) -> Tensor");
  m.def("swiglu_backward(Tensor g, Tensor gate, Tensor up) -> (Tensor, Tensor)");
  m.def("gelu(Tensor x, bool by_tanh) -> Tensor");
  m.def("gelu_backward(Tensor g, Tensor x, bool by_tanh) -> Tensor");
  m.def("relu(Tensor x) -> Tensor");
  m.def("relu_backward(Tensor g, Tensor y) -> Tensor");
  m.def("mean_steps(Tensor x) -> Tensor");
  m.def("mean_steps_backward(Tensor g, int steps) -> Tensor");
  m.def("embedding(Tensor w, Tensor ids) -> Tensor");
  m.def("embedding_backward(Tensor g, Tensor ids, int rows) -> Tensor");
  m.def("cross_entropy(Tensor logits, Tensor targets) -> (Tensor, Tensor)");
  m.def("cross_entropy_backward(Tensor g, Tensor logits, Tensor targets, Tensor lse) -> Tensor");
  m.def("add_(Tensor(a!) into, Tensor x) -> ()");
  m.def("cast(Tensor x, ScalarType dtype) -> Tensor");
  m.def(
      "adamw_(Tensor(a!) p, Tensor g, Tensor(b!) m, Tensor(c!) v, float lr, float beta1, float beta2, float eps, "
      "float weight_decay, int step, float gradient_scale) -> float");
  m.def("sgd_(Tensor(a!) p, Tensor g, float lr) -> float");
  m.def("square_sum(Tensor x) -> float");
  m.def(
      "move_(Tensor(a!) to, int to_at, int to_stride, Tensor x, int from_at, int from_stride, int piece, int total, "
      "bool add) -> ()");
}

#define SHARDSCOPE_REGISTER_HOST(name, result, arguments) m.impl(#name, &fsdp::ops::host::name);
#define SHARDSCOPE_REGISTER_META(name, result, arguments) m.impl(#name, &fsdp::ops::meta::name);
#define SHARDSCOPE_REGISTER_CUDA(name, result, arguments) m.impl(#name, &fsdp::ops::cuda::name);
TORCH_LIBRARY_IMPL(shardscope, CPU, m){SHARDSCOPE_OPERATORS(SHARDSCOPE_REGISTER_HOST)} TORCH_LIBRARY_IMPL(shardscope,
                                                                                                          Meta, m){
    SHARDSCOPE_OPERATORS(SHARDSCOPE_REGISTER_META)} TORCH_LIBRARY_IMPL(shardscope, CUDA, m) {
  SHARDSCOPE_OPERATORS(SHARDSCOPE_REGISTER_CUDA)
}

namespace fsdp::ops {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// Typed handles of the operators above, looked up once, called below autograd.
template <class Signature>
struct Caller;
template <class R, class... A>
struct Caller<R(A...)> {
  explicit Caller(const char* name)
      : handle(c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<R(A...)>()) {}
  R operator()(A... a) const {
    const at::AutoDispatchBelowADInplaceOrView below;
    return handle.call(std::forward<A>(a)...);
  }
  c10::TypedOperatorHandle<R(A...)> handle;
};
#define SHARDSCOPE_CALLER(name, result, arguments)                      \
  const Caller<result arguments>& call_##name() {                       \
    static const Caller<result arguments> caller("shardscope::" #name); \
    return caller;                                                      \
  }
SHARDSCOPE_OPERATORS(SHARDSCOPE_CALLER)
#undef SHARDSCOPE_CALLER

// A node of ours keeps plain tensors: models change nothing in place, so versions need no check. What it keeps is
// dropped as soon as it has run. An output is kept as an alias without history: the node would own itself otherwise.
template <class N, class... In>
std::shared_ptr<N> node_for(const In&... inputs) {
  if (!at::GradMode::is_enabled() || !torch::autograd::any_variable_requires_grad({inputs...})) return nullptr;
  std::shared_ptr<N> node(new N, torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs...));
  return node;
}
Tensor with_history(Tensor t, const std::shared_ptr<Node>& node) {
  if (node) torch::autograd::set_history(t, node);
  return t;
}
// Of nodes that keep tensors those with an output are makers.
template <int kCount>
struct Keeper : Remaking {
  std::array<Tensor, kCount> kept;
  void release_variables() override {
    for (Tensor& t : kept) t.reset();
    if (output) output->forget();
    Remaking::release_variables();
  }
};
thread_local bool remakes = true;

// Kept beyond its unit's forward: the unit's memory may be gone when a reader in another unit needs it, in forward
// already. So each norm makes its copy before anybody reads it, and keeps it also where no linear() ever does.
Tensor copy_of(const Tensor& parameter) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return parameter.clone();
}

struct LinearBackward final : Keeper<2> {
  std::shared_ptr<Recipe> x;  // in place of kept[0]
  bool bias = false, in_out = false;
  std::string name() const override { return "LinearBackward"; }
  variable_list apply(variable_list&& g) override {
    if (!g[0].defined()) {
      if (x) x->pass();
      return variable_list(bias ? 3 : 2);
    }
    auto [dx, dw, db] = call_linear_backward()(g[0], x ? x->take() : kept[0], kept[1], bias, in_out);
    if (bias) return {dx, dw, db};
    return {dx, dw};
  }
  void release_variables() override {
    x.reset();
    Keeper::release_variables();
  }
};
struct RmsNormBackward final : Keeper<3> {
  std::string name() const override { return "RmsNormBackward"; }
  variable_list apply(variable_list&& g) override {
    auto [dx, dw] = call_rms_norm_backward()(g[0], kept[0], kept[1], kept[2]);
    return {dx, dw};
  }
};
struct LayerNormBackward final : Keeper<4> {
  std::string name() const override { return "LayerNormBackward"; }
  variable_list apply(variable_list&& g) override {
    auto [dx, dw, db] = call_layer_norm_backward()(g[0], kept[0], kept[1], kept[2], kept[3]);
    return {dx, dw, db};
  }
};
struct RopeBackward final : Keeper<2> {
  RopePattern pattern;
  std::string name() const override { return "RopeBackward"; }
  variable_list apply(variable_list&& g) override {
    return {call_rope()(g[0], kept[0], kept[1], pattern.head_dim, pattern.period, pattern.turned, true)};
  }
};
struct AttentionBackward final : Keeper<6> {
  AttentionOptions o;
  std::string name() const override { return "AttentionBackward"; }
  variable_list apply(variable_list&& g) override {
    const bool biased = kept[5].defined();
    auto [dq, dk, dv, d_bias] =
        call_attention_backward()(g[0], kept[0], kept[1], kept[2], biased ? OptTensor(kept[5]) : std::nullopt, kept[3],
                                  kept[4], o.heads, o.kv_heads, o.causal, o.scale);
    if (biased) return {dq, dk, dv, d_bias};
    return {dq, dk, dv};
  }
};
struct RelativeBiasBackward final : Node {
  int64_t buckets = 0;
  RelativeOptions o;
  std::string name() const override { return "RelativeBiasBackward"; }
  variable_list apply(variable_list&& g) override {
    return {call_relative_bias_backward()(g[0], buckets, o.both_ways, o.far)};
  }
};
struct AttentionPackedBackward final : Keeper<3> {
  AttentionOptions o;
  bool by_head = true;
  std::string name() const override { return "AttentionPackedBackward"; }
  variable_list apply(variable_list&& g) override {
    return {call_attention_packed_backward()(g[0], kept[0], kept[1], kept[2], o.heads, o.causal, o.scale, by_head)};
  }
};
struct SwigluBackward final : Keeper<2> {
  std::string name() const override { return "SwigluBackward"; }
  variable_list apply(variable_list&& g) override {
    auto [d_gate, d_up] = call_swiglu_backward()(g[0], kept[0], kept[1]);
    return {d_gate, d_up};
  }
};
struct GeluBackward final : Keeper<1> {
  bool by_tanh = false;
  std::string name() const override { return "GeluBackward"; }
  variable_list apply(variable_list&& g) override { return {call_gelu_backward()(g[0], kept[0], by_tanh)}; }
};
struct ReluBackward final : Keeper<1> {
  std::string name() const override { return "ReluBackward"; }
  variable_list apply(variable_list&& g) override { return {call_relu_backward()(g[0], kept[0])}; }
};
struct MeanStepsBackward final : Node {
  int64_t steps = 0;
  std::string name() const override { return "MeanStepsBackward"; }
  variable_list apply(variable_list&& g) override { return {call_mean_steps_backward()(g[0], steps)}; }
};
struct EmbeddingBackward final : Keeper<1> {
  int64_t rows = 0;
  std::string name() const override { return "EmbeddingBackward"; }
  variable_list apply(variable_list&& g) override { return {call_embedding_backward()(g[0], kept[0], rows)}; }
};
struct CrossEntropyBackward final : Keeper<3> {
  std::string name() const override { return "CrossEntropyBackward"; }
  variable_list apply(variable_list&& g) override {
    return {call_cross_entropy_backward()(g[0], kept[0], kept[1], kept[2])};
  }
};
struct CastBackward final : Node {
  at::ScalarType source = at::kFloat;
  std::string name() const override { return "CastBackward"; }
  variable_list apply(variable_list&& g) override { return {call_cast()(g[0], source)}; }
};
struct ForkBackward final : Remaking {
  static bool sole_owner(const Tensor& t) {
    return t.use_count() == 1 && t.storage().use_count() == 1 && t.is_non_overlapping_and_dense();
  }
  std::string name() const override { return "ForkBackward"; }
  variable_list apply(variable_list&& g) override {
    Tensor sum;
    for (Tensor& next : g) {
      Tensor t = std::move(next);
      if (!t.defined()) continue;
      if (!sum.defined())
        sum = std::move(t);
      else if (sole_owner(sum))
        call_add_()(sum, t);
      else if (sole_owner(t))
        call_add_()(t, sum), sum = std::move(t);
      else
        sum = at::add(sum, t);
    }
    return {sum};
  }
};

}  // namespace

RemakeScope::RemakeScope(bool on) : before_(std::exchange(remakes, on)) {}
RemakeScope::~RemakeScope() { remakes = before_; }

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b, bool in_out) {
  const bool bias = b.defined();
  const auto node = bias ? node_for<LinearBackward>(x, w, b) : node_for<LinearBackward>(x, w);
  if (node) {
    if ((node->x = recipe_of(x)) != nullptr) node->x->add_reader();
    node->kept = {node->x ? Tensor() : x, w}, node->bias = bias, node->in_out = in_out;
  }
  return with_history(call_linear()(x, w, bias ? OptTensor(b) : std::nullopt, in_out), node);
}

Tensor rms_norm(const Tensor& x, const Tensor& w, double eps) {
  const auto node = node_for<RmsNormBackward>(x, w);
  auto [y, rstd] = call_rms_norm()(x, w, eps);
  if (node) node->kept = {x, rstd, w};
  if (node && remakes) node->remade_by([x, w = copy_of(w), eps] { return std::get<0>(call_rms_norm()(x, w, eps)); });
  return with_history(std::move(y), node);
}

Tensor layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  const auto node = node_for<LayerNormBackward>(x, w, b);
  auto [y, mean, rstd] = call_layer_norm()(x, w, b, eps);
  if (node) node->kept = {x, mean, rstd, w};
  if (node && remakes)
    node->remade_by([x, w = copy_of(w), b = copy_of(b), eps] { return std::get<0>(call_layer_norm()(x, w, b, eps)); });
  return with_history(std::move(y), node);
}

Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin, const RopePattern& p) {
  const auto node = node_for<RopeBackward>(x);
  if (node) node->kept = {cos, sin}, node->pattern = p;
  return with_history(call_rope()(x, cos, sin, p.head_dim, p.period, p.turned, false), node);
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o, const Tensor& bias) {
  const bool biased = bias.defined();
  const auto node = biased ? node_for<AttentionBackward>(q, k, v, bias) : node_for<AttentionBackward>(q, k, v);
  auto [y, lse] =
      call_attention()(q, k, v, biased ? OptTensor(bias) : std::nullopt, o.heads, o.kv_heads, o.causal, o.scale);
  if (node) node->kept = {q, k, v, y.detach(), lse, bias}, node->o = o;
  return with_history(std::move(y), node);
}

Tensor relative_bias(const Tensor& table, const RelativeOptions& o) {
  const auto node = node_for<RelativeBiasBackward>(table);
  if (node) node->buckets = table.size(0), node->o = o;
  return with_history(call_relative_bias()(table, o.queries, o.keys, o.both_ways, o.far), node);
}

Tensor attention_packed(const Tensor& qkv, const AttentionOptions& o, bool by_head) {
  const auto node = node_for<AttentionPackedBackward>(qkv);
  auto [y, lse] = call_attention_packed()(qkv, o.heads, o.causal, o.scale, by_head);
  if (node) node->kept = {qkv, y.detach(), lse}, node->o = o, node->by_head = by_head;
  return with_history(std::move(y), node);
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  const auto node = node_for<SwigluBackward>(gate, up);
  if (node) node->kept = {gate, up};
  if (node && remakes) node->remade_by([gate, up] { return call_swiglu()(gate, up); });
  return with_history(call_swiglu()(gate, up), node);
}

Tensor gelu(const Tensor& x, bool by_tanh) {
  const auto node = node_for<GeluBackward>(x);
  if (node) node->kept = {x}, node->by_tanh = by_tanh;
  if (node && remakes) node->remade_by([x, by_tanh] { return call_gelu()(x, by_tanh); });
  return with_history(call_gelu()(x, by_tanh), node);
}

Tensor relu(const Tensor& x) {
  const auto node = node_for<ReluBackward>(x);
  Tensor y = call_relu()(x);
  if (node) node->kept = {y.detach()};
  return with_history(std::move(y), node);
}

Tensor mean_steps(const Tensor& x) {
  const auto node = node_for<MeanStepsBackward>(x);
  if (node) node->steps = x.size(1);
  return with_history(call_mean_steps()(x), node);
}

Tensor embedding(const Tensor& w, const Tensor& ids) {
  const auto node = node_for<EmbeddingBackward>(w);
  if (node) node->kept = {ids}, node->rows = w.size(0);
  return with_history(call_embedding()(w, ids), node);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets) {
  const auto node = node_for<CrossEntropyBackward>(logits);
  auto [loss, lse] = call_cross_entropy()(logits, targets);
  if (node) node->kept = {logits, targets, lse};
  return with_history(std::move(loss), node);
}

Tensor cast(const Tensor& x, at::ScalarType dtype) {
  if (x.scalar_type() == dtype) return x;
  const auto node = node_for<CastBackward>(x);
  if (node) node->source = x.scalar_type();
  return with_history(call_cast()(x, dtype), node);
}

std::vector<Tensor> fork(const Tensor& x, int n) {
  std::vector<Tensor> readers(static_cast<std::size_t>(n), x);
  const auto node = node_for<ForkBackward>(x);
  if (!node) return readers;
  node->output = recipe_of(x);
  for (Tensor& r : readers) {
    r = x.variable_data();
    torch::autograd::set_history(r, node);
  }
  return readers;
}

double adamw_(const Tensor& p, const Tensor& g, const Tensor& m, const Tensor& v, const AdamWOptions& o, int64_t step,
              double gradient_scale) {
  return call_adamw_()(p, g, m, v, o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, step, gradient_scale);
}
double sgd_(const Tensor& p, const Tensor& g, double lr) { return call_sgd_()(p, g, lr); }
double square_sum(const Tensor& x) { return call_square_sum()(x); }
void move_(const Tensor& to, const Tensor& from, const Move& m) {
  call_move_()(to, m.to_at, m.to_stride, from, m.from_at, m.from_stride, m.piece, m.total, m.add);
}

}  // namespace fsdp::ops
