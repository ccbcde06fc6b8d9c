#include "fsdp/module/checkpoint.h"

#include <algorithm>

#include "fsdp/module/torch.h"

namespace fsdp {
namespace {

using torch::autograd::variable_list;

// Parameters of the module that have a value now, which are those of units around it.
void collect_present(const Module& m, std::vector<Parameter*>& out) {
  for (const auto& [name, p] : m.parameters())
    if (p->value.defined() && std::find(out.begin(), out.end(), p.get()) == out.end()) out.push_back(p.get());
  for (const auto& [name, child] : m.children()) collect_present(*child, out);
}

at::Tensor leaf_of(const at::Tensor& t, bool with_gradient) {
  if (!t.defined()) return {};
  at::Tensor leaf = t.detach();
  if (with_gradient) leaf.requires_grad_();
  return leaf;
}

struct CheckpointBackward final : torch::autograd::Node {
  Module* module = nullptr;
  std::vector<Parameter*> parameters;
  Tensors kept;                     // inputs, then values of `parameters`, without history
  std::vector<bool> with_gradient;  // of `kept`

  std::string name() const override { return "CheckpointBackward"; }
  void release_variables() override { kept.clear(); }

  variable_list apply(variable_list&& gradients) override {
    Tensors leaves;
    for (std::size_t i = 0; i < kept.size(); ++i) leaves.push_back(leaf_of(kept[i], with_gradient[i]));
    kept.clear();
    go_through(compute_again(leaves), std::move(gradients));
    variable_list out;
    for (at::Tensor& leaf : leaves) {
      out.push_back(leaf.defined() ? leaf.grad() : at::Tensor());
      if (out.back().defined()) leaf.mutable_grad().reset();
    }
    return out;
  }

 private:
  Tensors compute_again(const Tensors& leaves) const {
    const std::size_t inputs = leaves.size() - parameters.size();
    for (std::size_t p = 0; p < parameters.size(); ++p) parameters[p]->set(leaves[inputs + p]);
    const at::AutoGradMode on(true);
    Tensors outputs = module->compute(Tensors(leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(inputs)));
    for (Parameter* p : parameters) p->set({});
    return outputs;
  }
  // With accumulation into the leaves: the graph also ends in nodes of units inside, which have no leaf.
  static void go_through(const Tensors& outputs, variable_list&& gradients) {
    torch::autograd::edge_list roots;
    variable_list with;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].defined() || !outputs[i].requires_grad() || !gradients[i].defined()) continue;
      roots.push_back(torch::autograd::impl::gradient_edge(outputs[i]));
      with.push_back(std::move(gradients[i]));
    }
    if (!roots.empty()) torch::autograd::Engine::get_default_engine().execute(roots, with, false, false, true);
  }
};

}  // namespace

Tensors checkpoint(Module& module, Tensors inputs) {
  if (!at::GradMode::is_enabled()) return module.compute(std::move(inputs));
  std::vector<Parameter*> parameters;
  collect_present(module, parameters);
  Tensors sources = inputs;
  for (const Parameter* p : parameters) sources.push_back(p->value);

  std::shared_ptr<CheckpointBackward> node(new CheckpointBackward, torch::autograd::deleteNode);
  torch::autograd::edge_list edges;
  for (const at::Tensor& t : sources) {
    node->with_gradient.push_back(t.defined() && t.requires_grad());
    edges.push_back(node->with_gradient.back() ? torch::autograd::impl::gradient_edge(t) : torch::autograd::Edge());
    node->kept.push_back(leaf_of(t, false));
  }
  node->set_next_edges(std::move(edges));
  node->module = &module;
  node->parameters = std::move(parameters);
  sources.clear();

  Tensors outputs;
  {
    const at::AutoGradMode off(false);
    outputs = module.compute(std::move(inputs));
  }
  for (at::Tensor& t : outputs)
    if (t.defined() && at::isFloatingType(t.scalar_type())) torch::autograd::set_history(t, node);
  return outputs;
}

}  // namespace fsdp
