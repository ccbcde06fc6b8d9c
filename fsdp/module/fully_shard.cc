#include "fsdp/module/fully_shard.h"

#include <deque>
#include <string>

#include "fsdp/core/errors.h"
#include "fsdp/module/counting_allocator.h"
#include "fsdp/module/flat_storage.h"
#include "fsdp/module/ops.h"
#include "fsdp/module/torch.h"
#include "fsdp/module/torch_units.h"

namespace fsdp {

class ShardedModel::Impl {
 public:
  Impl(Module& root, const UnitPlan& plan, const ShardedModelOptions& options, Device& device, Collectives& collectives,
       MemoryMeter* meter)
      : units_(root, plan, options, collectives),
        scheduler_(units_.traits(), options.scheduler, device, collectives, units_, meter),
        meter_(meter) {
    if (meter != nullptr) meter->set_unit_namer(&Impl::unit_name, this);
    const std::vector<Module*> modules = modules_of(root);
    for (UnitId u = 0; u < units_.count(); ++u) {
      const std::vector<ModuleId>& ids = units_.at(u).spec.modules;
      Module* const first = modules.at(static_cast<std::size_t>(ids.front()));
      Module* const last = modules.at(static_cast<std::size_t>(ids.back()));
      hooks_.emplace_back(*this, u, true, first == last);
      first->set_hooks(&hooks_.back());
      if (first == last) continue;
      hooks_.emplace_back(*this, u, false, true);
      last->set_hooks(&hooks_.back());
    }
    hooked_ = modules;
    name_unit_of_parameters(true);
  }
  ~Impl() {
    name_unit_of_parameters(false);
    for (Module* m : hooked_) m->set_hooks(nullptr);
    if (meter_ != nullptr) meter_->set_unit_namer(nullptr, nullptr);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  TorchUnits& units() { return units_; }
  Scheduler& scheduler() { return scheduler_; }

 private:
  void name_unit_of_parameters(bool held) {
    for (UnitId u = 0; u < units_.count(); ++u)
      for (const auto& p : units_.at(u).parameters) p->unit = held ? units_.at(u).spec.name : "";
  }

  // Stands in the graph for "the unit's parameters are there". It has no inputs: the shard's gradient is made by the
  // reduction, not by autograd. Created before the unit's operators, it runs after all of theirs and before those of
  // what ran earlier.
  struct Unshard final : torch::autograd::Node {
    Impl* model = nullptr;
    UnitId unit = kNoUnit;
    std::string name() const override { return "Unshard"; }
    torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
      model->units_.at(unit).pending = std::move(gradients);
      model->scheduler_.post_backward(unit);
      return {};
    }
  };

  struct Hooks final : ModuleHooks {
    Hooks(Impl& model, UnitId unit, bool first, bool last) : model(model), unit(unit), first(first), last(last) {}
    void before_forward(Module&, Tensors& inputs) override {
      if (first) model.enter(unit, inputs);
    }
    void after_forward(Module&, Tensors& outputs) override {
      if (last) model.leave(unit, outputs);
    }
    Impl& model;
    const UnitId unit;
    const bool first, last;
  };

  void enter(UnitId u, Tensors& inputs) {
    TorchUnits::Unit& unit = units_.at(u);
    const at::ScalarType dtype = torch_dtype(unit.spec.options.param_dtype);
    for (at::Tensor& t : inputs)  // as FSDP2's cast_forward_inputs
      if (t.defined() && at::isFloatingType(t.scalar_type())) t = ops::cast(t, dtype);
    // A frozen unit has no gradients whose arrival could tell that its backward is over.
    if (!unit.traits.trains) ops::on_backward_through(inputs, [this, u] { scheduler_.post_backward(u); });
    if (torch::autograd::get_current_graph_task_id() >= 0) scheduler_.begin_backward();  // computed again
    scheduler_.pre_forward(u);
    std::shared_ptr<Unshard> node;
    if (at::GradMode::is_enabled() && unit.traits.trains) {
      node = std::shared_ptr<Unshard>(new Unshard, torch::autograd::deleteNode);
      node->model = this;
      node->unit = u;
    }
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
      at::Tensor value = unit.views[i].variable_data();
      if (node && unit.parameters[i]->trainable) torch::autograd::set_history(value, node);
      unit.parameters[i]->set(std::move(value));
    }
  }

  void leave(UnitId u, Tensors& outputs) {
    const std::optional<Dtype> wanted = units_.at(u).spec.options.output_dtype;
    for (at::Tensor& t : outputs) {
      if (!t.defined()) continue;
      if (t.requires_grad()) t.register_hook([this, u](const at::Tensor&) { scheduler_.pre_backward(u); });
      if (wanted && at::isFloatingType(t.scalar_type())) t = ops::cast(t, torch_dtype(*wanted));
    }
    for (const auto& p : units_.at(u).parameters) p->set({});
    scheduler_.post_forward(u);
  }

  static std::string unit_name(const void* self, UnitId u) {
    return static_cast<const Impl*>(self)->units_.at(u).spec.name;
  }

  TorchUnits units_;
  Scheduler scheduler_;
  MemoryMeter* meter_;
  std::deque<Hooks> hooks_;  // addresses stay
  std::vector<Module*> hooked_;
};

ShardedModel::ShardedModel(Module& root, const UnitPlan& plan, const ShardedModelOptions& options, Device& device,
                           Collectives& collectives, MemoryMeter* meter) {
  const MeterScope scope(meter);
  impl_ = std::make_unique<Impl>(root, plan, options, device, collectives, meter);
}

namespace {

// A backward that threw has left nodes in the engine's queue of this thread, and with them tensors of this model that
// would outlive meter and collectives. A fresh queue takes its place.
struct EngineQueue : torch::autograd::Engine {
  static void replace() noexcept {
    void (torch::autograd::Engine::*const put)(std::shared_ptr<torch::autograd::ReadyQueue>) =
        &EngineQueue::init_local_ready_queue;
    (torch::autograd::Engine::get_default_engine().*put)(std::make_shared<torch::autograd::ReadyQueue>());
  }
};

}  // namespace

ShardedModel::~ShardedModel() { EngineQueue::replace(); }

Scheduler& ShardedModel::scheduler() { return impl_->scheduler(); }

ShardedModel::Shard ShardedModel::shard(UnitId unit) const {
  const TorchUnits::Unit& u = impl_->units().at(unit);
  return {u.shard, u.gradient, impl_->units().counts_in_norm(unit), u.traits.trains};
}
const ShardLayout& ShardedModel::layout(UnitId unit) const { return impl_->units().at(unit).layout; }

ShardedModel::ParameterShard ShardedModel::parameter_shard(UnitId unit, std::size_t parameter) const {
  const TorchUnits::Unit& u = impl_->units().at(unit);
  ParameterShard s;
  s.parameter = u.parameters.at(parameter).get();
  s.range = u.layout.local(parameter, u.rank);
  const int g = u.gradients.index[parameter];
  if (g >= 0) s.gradient_at = u.gradients.layout.local(static_cast<std::size_t>(g), u.rank).at;
  return s;
}
std::size_t ShardedModel::parameter_count(UnitId unit) const { return impl_->units().at(unit).parameters.size(); }
Count ShardedModel::gradient_count(UnitId unit) const { return impl_->units().at(unit).gradients.layout.shard; }
UnitId ShardedModel::unit_count() const { return impl_->units().count(); }

}  // namespace fsdp
