#include "harness/workload/graph_meta.h"

#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>

#include <memory>
#include <mutex>

#include "fsdp/module/torch.h"

namespace harness {
namespace {

using at::Tensor;
using OptTensor = std::optional<Tensor>;

Tensor fresh(at::IntArrayRef sizes, const Tensor& like) { return at::empty(sizes, like.options()); }
Tensor like(const Tensor& t) { return at::empty_like(t); }

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  auto sizes = self.sizes().vec();
  if (!sizes.empty()) sizes[static_cast<std::size_t>(at::maybe_wrap_dim(dim, self.dim()))] = index.numel();
  return fresh(sizes, self);
}
Tensor embedding_dense_backward(const Tensor& g, const Tensor&, c10::SymInt rows, c10::SymInt, bool) {
  return fresh({rows.expect_int(), g.size(-1)}, g);
}
Tensor where_self(const Tensor& c, const Tensor& a, const Tensor& b) {
  const auto sizes = at::infer_size(at::infer_size(c.sizes(), a.sizes()), b.sizes());
  return at::empty(sizes, c.options().dtype(at::result_type(a, b)));
}
Tensor& where_out(const Tensor&, const Tensor&, const Tensor&, Tensor& out) { return out; }
Tensor same(const Tensor& x) { return like(x); }
Tensor& same_out(const Tensor&, Tensor& out) { return out; }
Tensor as_bool(const Tensor& x) { return at::empty(x.sizes(), x.options().dtype(at::kBool)); }
std::tuple<Tensor, Tensor> native_dropout(const Tensor& x, double, std::optional<bool>) {
  return {like(x), at::empty(x.sizes(), x.options().dtype(at::kBool))};
}
Tensor native_dropout_backward(const Tensor& g, const Tensor&, double) { return like(g); }
Tensor flip(const Tensor& x, at::IntArrayRef) { return like(x); }

// Statistics are of the rows before the normalised dimensions.
std::vector<int64_t> rows_of(const Tensor& x, std::size_t normalized) {
  auto sizes = x.sizes().vec();
  for (std::size_t i = sizes.size() - normalized; i < sizes.size(); ++i) sizes[i] = 1;
  return sizes;
}
std::tuple<Tensor, Tensor, Tensor> native_layer_norm(const Tensor& x, c10::SymIntArrayRef shape, const OptTensor&,
                                                     const OptTensor&, double) {
  const auto rows = rows_of(x, shape.size());
  Tensor y = fresh(x.sizes(), x);
  return {y, fresh(rows, x), fresh(rows, x)};
}
std::tuple<Tensor, Tensor, Tensor> native_layer_norm_backward(const Tensor&, const Tensor& x, c10::SymIntArrayRef,
                                                              const Tensor&, const Tensor&, const OptTensor& w,
                                                              const OptTensor& b, std::array<bool, 3> mask) {
  return {mask[0] ? like(x) : Tensor(), mask[1] && w ? like(*w) : Tensor(), mask[2] && b ? like(*b) : Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> native_group_norm(const Tensor& x, const OptTensor&, const OptTensor&, c10::SymInt n,
                                                     c10::SymInt, c10::SymInt, int64_t groups, double) {
  Tensor y = fresh(x.sizes(), x);
  return {y, fresh({n.expect_int(), groups}, x), fresh({n.expect_int(), groups}, x)};
}
std::tuple<Tensor, Tensor, Tensor> native_group_norm_backward(const Tensor&, const Tensor& x, const Tensor&, const Tensor&,
                                                              const OptTensor& w, c10::SymInt, c10::SymInt c, c10::SymInt,
                                                              int64_t, std::array<bool, 3> mask) {
  const std::vector<int64_t> channels{c.expect_int()};
  return {mask[0] ? like(x) : Tensor(), mask[1] && w ? fresh(channels, x) : Tensor(), mask[2] ? fresh(channels, x) : Tensor()};
}

// [batch, heads, steps, width]; the result lies as [batch, steps, heads, width], the log-sum-exp as [batch, heads, steps].
std::tuple<Tensor, Tensor> flash(const Tensor& q, const Tensor&, const Tensor& v, double, bool, const OptTensor&,
                                 std::optional<double>) {
  Tensor y = at::empty({q.size(0), q.size(2), q.size(1), v.size(3)}, q.options()).transpose(1, 2);
  return {y, at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat)).transpose(1, 2)};
}
std::tuple<Tensor, Tensor, Tensor> flash_backward(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const Tensor&, const Tensor&, double, bool, const OptTensor&,
                                                  std::optional<double>) {
  const auto turned = [](const Tensor& t) {
    return at::empty({t.size(0), t.size(2), t.size(1), t.size(3)}, t.options()).transpose(1, 2);
  };
  return {turned(q), turned(k), turned(v)};
}

class Kernels {
 public:
  template <class F>
  void add(const char* name, const char* overload, F&& f) {
    const auto op = c10::Dispatcher::singleton().findSchema({std::string("aten::") + name, overload});
    if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::Meta)) return;
    const std::string full = overload[0] == '\0' ? name : std::string(name) + "." + overload;
    library_.impl(full.c_str(), torch::dispatch(c10::DispatchKey::Meta, std::forward<F>(f)));
  }

 private:
  torch::Library library_{torch::Library::IMPL, "aten", std::nullopt, __FILE__, __LINE__};
};

}  // namespace

void register_meta_kernels() {
  static std::once_flag once;
  static std::unique_ptr<Kernels> kept;
  std::call_once(once, [] {
    kept = std::make_unique<Kernels>();
    Kernels& k = *kept;
    k.add("index_select", "", index_select);
    k.add("embedding_dense_backward", "", embedding_dense_backward);
    k.add("where", "self", where_self);
    k.add("where", "self_out", where_out);
    k.add("relu", "", same);
    k.add("abs", "", same);
    k.add("abs", "out", same_out);
    k.add("isfinite", "", as_bool);
    k.add("logical_not", "", as_bool);
    k.add("flip", "", flip);
    k.add("native_dropout", "", native_dropout);
    k.add("native_dropout_backward", "", native_dropout_backward);
    k.add("native_layer_norm", "", native_layer_norm);
    k.add("native_layer_norm_backward", "", native_layer_norm_backward);
    k.add("native_group_norm", "", native_group_norm);
    k.add("native_group_norm_backward", "", native_group_norm_backward);
    k.add("_scaled_dot_product_flash_attention_for_cpu", "", flash);
    k.add("_scaled_dot_product_flash_attention_for_cpu_backward", "", flash_backward);
  });
}

void attention_on_meta(std::vector<c10::IValue>& stack) {
  const Tensor q = stack[0].toTensor(), k = stack[1].toTensor(), v = stack[2].toTensor();
  OptTensor mask = stack[3].toOptional<Tensor>();
  const double dropout = stack[4].toDouble();
  const bool causal = stack[5].toBool(), grouped = stack[7].toBool();
  const std::optional<double> scale = stack[6].toOptional<double>();
  const bool fused = q.dim() == 4 && k.dim() == 4 && q.size(1) == k.size(1) && q.size(3) == v.size(3) && dropout == 0 &&
                     !grouped && !(mask && (mask->requires_grad() || (mask->dim() != 4 && mask->dim() != 2)));
  stack.clear();
  if (!fused) {
    stack.emplace_back(at::scaled_dot_product_attention(q, k, v, mask, dropout, causal, scale, grouped));
    return;
  }
  if (mask && mask->scalar_type() == at::kBool)
    mask = at::where(*mask, at::zeros({}, q.options()), at::zeros({}, q.options()));
  stack.emplace_back(std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, causal, mask, scale)));
}

}  // namespace harness
