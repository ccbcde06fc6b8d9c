#include "fsdp/module/ops.h"
#include "fsdp/module/torch.h"

namespace fsdp::ops {
namespace {

using at::Tensor;
using torch::autograd::Node;
using torch::autograd::variable_list;

struct PassedBackward final : Node {
  std::function<void()> done;
  std::string name() const override { return "PassedBackward"; }
  variable_list apply(variable_list&& g) override {
    done();
    return std::move(g);
  }
  void release_variables() override { done = nullptr; }
};

}  // namespace

void on_backward_through(std::vector<at::Tensor>& inputs, std::function<void()> done) {
  if (!at::GradMode::is_enabled()) return;
  std::vector<Tensor*> with_gradient;
  torch::autograd::edge_list edges;
  for (Tensor& t : inputs) {
    if (!t.defined() || !t.requires_grad()) continue;
    with_gradient.push_back(&t);
    edges.push_back(torch::autograd::impl::gradient_edge(t));
  }
  if (with_gradient.empty()) return;
  std::shared_ptr<PassedBackward> node(new PassedBackward, torch::autograd::deleteNode);
  node->set_next_edges(std::move(edges));
  node->done = std::move(done);
  for (Tensor* t : with_gradient) {
    Tensor alias = t->variable_data();
    torch::autograd::set_history(alias, node);
    *t = std::move(alias);
  }
}

}  // namespace fsdp::ops
