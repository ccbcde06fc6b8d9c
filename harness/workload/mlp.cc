// Linear layers alone: features [batch, steps, dim] -> scores of the classes.
#include "fsdp/module/torch.h"
#include "harness/workload/layers.h"
#include "harness/workload/models.h"

namespace harness {
namespace {

using fsdp::Tensors;

class Block final : public fsdp::Module {
 public:
  explicit Block(const ModelSettings& m)
      : Module("MLPBlock"),
        up_(add_child<Linear>("fc1", m.dim, m.ffn, true).mark_sublayer_start()),
        down_(add_child<Linear>("fc2", m.ffn, m.dim, true).mark_sublayer_start()) {}

 protected:
  Tensors forward(Tensors inputs) override {
    inputs = up_(std::move(inputs));
    inputs[0] = fsdp::ops::gelu(inputs[0]);
    return down_(std::move(inputs));
  }

 private:
  fsdp::Module &up_, &down_;
};

class Mlp final : public fsdp::Module {
 public:
  explicit Mlp(const ModelSettings& m)
      : Module("MLP"),
        blocks_(add_child<ModuleList>("layers")),
        head_(add_child<Linear>("head", m.dim, m.classes, true)) {
    for (std::int64_t l = 0; l < m.layers; ++l) blocks_.append<Block>(m);
  }

 protected:
  Tensors forward(Tensors inputs) override { return head_(blocks_(std::move(inputs))); }

 private:
  ModuleList& blocks_;
  fsdp::Module& head_;
};

}  // namespace

std::unique_ptr<fsdp::Module> build_mlp(const ModelSettings& m, bool) {
  auto model = std::make_unique<Mlp>(m);
  fsdp::name_modules(*model);
  return model;
}

}  // namespace harness
