#include "tests/parity/chain.h"

#include "fsdp/module/ops.h"
#include "fsdp/module/torch.h"
#include "harness/workload/describe.h"
#include "harness/workload/layers.h"

namespace harness {
namespace {

using fsdp::Tensors;

class Link final : public fsdp::Module {
 public:
  explicit Link(fsdp::Count dim) : Module("Link"), fc_(add_child<Linear>("fc", dim, dim, true)) {}

 protected:
  // Weights are small: without the factor the signal is gone after a few blocks.
  Tensors forward(Tensors inputs) override {
    inputs = fc_(std::move(inputs));
    // A tensor: a plain number is cast, and so allocated, on the host alone.
    const at::Tensor eight = at::scalar_tensor(8.0, inputs[0].options().requires_grad(false));
    inputs[0] = fsdp::ops::gelu(at::mul(inputs[0], eight));
    return inputs;
  }

 private:
  fsdp::Module& fc_;
};

class Chain final : public fsdp::Module {
 public:
  Chain(const ModelSettings& m, std::vector<int> order)
      : Module("Chain"),
        order_(std::move(order)),
        links_(add_child<ModuleList>("layers")),
        head_(add_child<Linear>("head", m.dim, m.classes, true)) {
    for (std::int64_t l = 0; l < m.layers; ++l) links_.append<Link>(m.dim);
  }

 protected:
  Tensors forward(Tensors inputs) override {
    for (const int i : order_) inputs = (*links_.children().at(static_cast<std::size_t>(i)).second)(std::move(inputs));
    return head_(std::move(inputs));
  }

 private:
  std::vector<int> order_;
  ModuleList& links_;
  fsdp::Module& head_;
};

}  // namespace

std::unique_ptr<fsdp::Module> make_chain(const ModelSettings& m, std::vector<int> order) {
  auto chain = std::make_unique<Chain>(m, std::move(order));
  fsdp::name_modules(*chain);
  return chain;
}

fsdp::ModuleTree describe_chain(const ModelSettings& m) { return fsdp::tree_of(*make_chain(m, {})); }

}  // namespace harness
