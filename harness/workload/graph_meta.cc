#include "harness/workload/graph_meta.h"

#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Reduction.h>

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
Tensor same(const Tensor& x) { return like(x); }
Tensor& sized(Tensor& out, at::IntArrayRef sizes) {
  if (out.sizes() != sizes) out.resize_(sizes);
  return out;
}
Tensor& same_out(const Tensor& x, Tensor& out) { return sized(out, x.sizes()); }
Tensor& where_out(const Tensor& c, const Tensor& a, const Tensor& b, Tensor& out) {
  return sized(out, at::infer_size(at::infer_size(c.sizes(), a.sizes()), b.sizes()));
}
Tensor logical(const Tensor& a, const Tensor& b) {
  return at::empty(at::infer_size(a.sizes(), b.sizes()), a.options().dtype(at::kBool));
}
Tensor& logical_out(const Tensor& a, const Tensor& b, Tensor& out) {
  return sized(out, at::infer_size(a.sizes(), b.sizes()));
}
Tensor as_bool(const Tensor& x) { return at::empty(x.sizes(), x.options().dtype(at::kBool)); }
std::tuple<Tensor, Tensor> native_dropout(const Tensor& x, double, std::optional<bool>) {
  return {like(x), at::empty(x.sizes(), x.options().dtype(at::kBool))};
}
Tensor native_dropout_backward(const Tensor& g, const Tensor&, double) { return like(g); }
Tensor flip(const Tensor& x, at::IntArrayRef) { return like(x); }
Tensor roll(const Tensor& x, c10::SymIntArrayRef, at::IntArrayRef) { return like(x); }

// Losses: of every element, or one number; gradients are as large as what they are of.
Tensor reduced(const Tensor& x, int64_t reduction) { return reduction == at::Reduction::None ? like(x) : fresh({}, x); }
Tensor loss_backward(const Tensor&, const Tensor& x, const Tensor&, int64_t) { return like(x); }
Tensor bent_loss(const Tensor& x, const Tensor&, int64_t reduction, double) { return reduced(x, reduction); }
Tensor bent_loss_backward(const Tensor&, const Tensor& x, const Tensor&, int64_t, double) { return like(x); }
Tensor cross_entropy(const Tensor& x, const Tensor&, const OptTensor&, int64_t reduction) {
  return reduced(x, reduction);
}
Tensor cross_entropy_backward(const Tensor&, const Tensor& x, const Tensor&, const OptTensor&, int64_t) {
  return like(x);
}
Tensor of_second(const Tensor&, const Tensor& x) { return like(x); }

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
std::tuple<Tensor, Tensor, Tensor> native_group_norm_backward(const Tensor&, const Tensor& x, const Tensor&,
                                                              const Tensor&, const OptTensor& w, c10::SymInt,
                                                              c10::SymInt c, c10::SymInt, int64_t,
                                                              std::array<bool, 3> mask) {
  const std::vector<int64_t> channels{c.expect_int()};
  return {mask[0] ? like(x) : Tensor(), mask[1] && w ? fresh(channels, x) : Tensor(),
          mask[2] ? fresh(channels, x) : Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_of(const Tensor& x, bool training) {
  const std::vector<int64_t> channels{training ? x.size(1) : 0};
  Tensor y = like(x);
  return {y, fresh(channels, x), fresh(channels, x)};
}
std::tuple<Tensor, Tensor, Tensor> batch_norm_legit(const Tensor& x, const OptTensor&, const OptTensor&, Tensor&,
                                                    Tensor&, bool training, double, double) {
  return batch_norm_of(x, training);
}
std::tuple<Tensor, Tensor, Tensor> batch_norm_no_stats(const Tensor& x, const OptTensor&, const OptTensor&,
                                                       bool training, double, double) {
  return batch_norm_of(x, training);
}
std::tuple<Tensor, Tensor, Tensor> native_batch_norm(const Tensor& x, const OptTensor&, const OptTensor&,
                                                     const OptTensor&, const OptTensor&, bool training, double,
                                                     double) {
  return batch_norm_of(x, training);
}
std::tuple<Tensor, Tensor, Tensor> native_batch_norm_backward(const Tensor&, const Tensor& x, const OptTensor& w,
                                                              const OptTensor&, const OptTensor&, const OptTensor&,
                                                              const OptTensor&, bool, double,
                                                              std::array<bool, 3> mask) {
  const std::vector<int64_t> channels{x.size(1)};
  return {mask[0] ? like(x) : Tensor(), mask[1] && w ? fresh(channels, x) : Tensor(),
          mask[2] ? fresh(channels, x) : Tensor()};
}

// Weight: [out, in / groups, window...], turned round when transposed: [in, out / groups, window...].
Tensor convolution(const Tensor& x, const Tensor& w, const OptTensor&, c10::SymIntArrayRef stride,
                   c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                   c10::SymIntArrayRef extra, c10::SymInt groups) {
  std::vector<int64_t> sizes{x.size(0), transposed ? w.size(1) * groups.expect_int() : w.size(0)};
  for (std::size_t d = 0; d < stride.size(); ++d) {
    const auto at = static_cast<int64_t>(d) + 2;
    const int64_t window = dilation[d].expect_int() * (w.size(at) - 1), step = stride[d].expect_int();
    const int64_t pad = 2 * padding[d].expect_int(), n = x.size(at);
    sizes.push_back(transposed ? (n - 1) * step - pad + window + extra[d].expect_int() + 1
                               : (n + pad - window - 1) / step + 1);
  }
  return fresh(sizes, x);
}
std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& g, const Tensor& x, const Tensor& w,
                                                        c10::SymIntArrayRef, c10::SymIntArrayRef, c10::SymIntArrayRef,
                                                        bool, c10::SymIntArrayRef, c10::SymInt,
                                                        std::array<bool, 3> mask) {
  return {mask[0] ? like(x) : Tensor(), mask[1] ? like(w) : Tensor(), mask[2] ? fresh({g.size(1)}, g) : Tensor()};
}

// [batch, heads, steps, width]; the result lies as [batch, steps, heads, width], the log-sum-exp as [batch, heads,
// steps].
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
    k.add("logical_not", "out", same_out);
    for (const char* name : {"logical_and", "logical_or", "logical_xor"}) {
      k.add(name, "", logical);
      k.add(name, "out", logical_out);
    }
    k.add("convolution_overrideable", "", convolution);
    k.add("convolution_backward_overrideable", "", convolution_backward);
    k.add("_native_batch_norm_legit", "", batch_norm_legit);
    k.add("_native_batch_norm_legit", "no_stats", batch_norm_no_stats);
    k.add("native_batch_norm", "", native_batch_norm);
    k.add("native_batch_norm_backward", "", native_batch_norm_backward);
    k.add("flip", "", flip);
    k.add("roll", "", roll);
    k.add("hardswish", "", same);
    k.add("hardswish_backward", "", of_second);
    k.add("mse_loss_backward", "", loss_backward);
    k.add("huber_loss", "", bent_loss);
    k.add("huber_loss_backward", "", bent_loss_backward);
    k.add("smooth_l1_loss_backward", "", bent_loss_backward);
    k.add("binary_cross_entropy", "", cross_entropy);
    k.add("binary_cross_entropy_backward", "", cross_entropy_backward);
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
  stack.emplace_back(
      std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, causal, mask, scale)));
}

}  // namespace harness
