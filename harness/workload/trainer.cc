#include "harness/workload/trainer.h"

#include <c10/core/AutogradState.h>
#include <torch/version.h>

#include "fsdp/core/errors.h"
#include "fsdp/module/counting_allocator.h"
#include "fsdp/module/fully_shard.h"
#include "fsdp/module/kernels.h"
#include "fsdp/module/ops.h"
#include "fsdp/module/sharded_optimizer.h"
#include "fsdp/module/sharded_state.h"
#include "fsdp/module/tensor_device.h"
#include "fsdp/module/torch.h"
#include "fsdp/schedule/scripted_step.h"
#include "harness/workload/batch.h"
#include "harness/workload/graph_module.h"
#include "harness/workload/models.h"

namespace harness {
namespace {

// Per thread, or results depend on the machine's cores and hooks run on other threads.
void use_one_thread() {
  at::set_num_threads(1);
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

fsdp::OptimizerKind optimizer_of(const std::string& name) {
  if (name == "adamw") return fsdp::OptimizerKind::kAdamW;
  if (name == "sgd") return fsdp::OptimizerKind::kSgd;
  throw fsdp::ConfigError("[optimizer] there is no '" + name + "'; use adamw or sgd");
}

std::vector<Batch> make_batches(const TrainerSettings& s, const fsdp::Collectives& collectives) {
  std::vector<Batch> batches;
  for (int k = 0; k < s.accumulate; ++k) {
    const std::int64_t index = static_cast<std::int64_t>(k) * collectives.world() + collectives.rank();
    Batch b = make_batch(s.model, s.seed, index * s.batch, s.batch, s.meta);
    for (at::Tensor* t : {&b.inputs, &b.targets})
      if (!s.meta && t->defined()) *t = fsdp::on_tensor_device(*t);
    for (at::Tensor& t : b.graph)
      if (!s.meta) t = fsdp::on_tensor_device(t);
    batches.push_back(std::move(b));
  }
  return batches;
}

std::unique_ptr<fsdp::Module> checkpointed_model(const TrainerSettings& s) {
  if (s.checkpoint && s.model.family == "graph") check_graph_checkpoint(s.model);
  auto model = s.make_model ? s.make_model() : build_model(s.model, s.meta);
  for (fsdp::Module* m : fsdp::modules_of(*model)) m->set_checkpointed(s.checkpoint && m->is_block());
  return model;
}

fsdp::OptimizerOptions optimizer_options(const TrainerSettings& s) {
  fsdp::OptimizerOptions o;
  o.kind = optimizer_of(s.optimizer);
  o.adamw.eps = s.adamw_epsilon;
  o.clip = s.clip;
  return o;
}

}  // namespace

class Trainer::Impl {
 public:
  Impl(const TrainerSettings& s, const fsdp::UnitPlan& plan, fsdp::Device& device, fsdp::Collectives& collectives,
       fsdp::MemoryMeter& meter)
      : device_(device),
        collectives_(collectives),
        meter_(meter),
        micro_batches_{s.accumulate, s.sync_every},
        tensors_(s.tensors),
        remake_(s.remake),
        batches_(make_batches(s, collectives)),
        model_(checkpointed_model(s)),
        sharded_(*model_, plan, {s.meta, s.seed, s.scheduler}, device, collectives, &meter),
        optimizer_(sharded_, optimizer_options(s), device, collectives) {
    if (s.model.family != "graph") return;
    if (!s.meta) load_graph_weights(s.model, sharded_);
    // Random operators: other numbers on every rank, the same in every run.
    at::manual_seed(s.seed * 0x9E3779B97F4A7C15ull + static_cast<std::uint64_t>(collectives.rank()) + 1);
  }

  StepResult step() {
    const fsdp::MeterScope scope(&meter_);
    const fsdp::TensorDeviceScope there(tensors_);
    const fsdp::ops::RemakeScope remake(remake_);
    device_.begin_step(next_step_++);
    sharded_.scheduler().begin_step();
    StepResult r;
    for (int k = 0; k < micro_batches_.count; ++k) {
      sharded_.scheduler().set_gradient_sync(micro_batches_.sync(k));
      r.loss += micro_batch(batches_[static_cast<std::size_t>(k)]) / micro_batches_.count;
    }
    r.gradient_square_sum = optimizer_.step();
    for (const at::Tensor& loss : losses_) r.loss += loss.item<double>() / micro_batches_.count;
    losses_.clear();
    device_.end_step();
    return r;
  }

  void set_step(int next) { next_step_ = next; }
  void save(const std::string& directory) {
    require_host_memory();
    fsdp::save_state(sharded_, optimizer_, collectives_, directory);
  }
  void load(const std::string& directory) {
    require_host_memory();
    fsdp::load_state(sharded_, optimizer_, collectives_, directory);
  }
  fsdp::Scheduler& scheduler() { return sharded_.scheduler(); }

 private:
  void require_host_memory() const {
    if (tensors_ != nullptr)
      throw fsdp::ConfigError("[state] is saved and loaded in host memory alone; use device cpu");
  }
  void backward(const at::Tensor& loss) {
    try {
      if (micro_batches_.count == 1)
        loss.backward();
      else
        loss.backward(at::full({}, 1.0 / micro_batches_.count, loss.options().requires_grad(false)));
    } catch (const c10::NotImplementedError& e) {  // of somebody's exported model, on tensors without memory
      const std::string what = e.what_without_backtrace();
      throw fsdp::ConfigError(
          "[model] " + what.substr(0, what.find(':', what.find("::") + 2)) +
          " in backward has no kernel for tensors without memory; it cannot be predicted, run it with "
          "--device cpu");
    }
  }
  at::Tensor loss_of(const Batch& batch) {
    if (batch.graph.empty()) return fsdp::ops::cross_entropy((*model_)(batch.inputs), batch.targets);
    at::Tensor loss = std::move((*model_)(batch.graph).front());
    return loss.dim() == 0 ? loss : loss.reshape({});
  }
  // Returns the loss, or, where reading it would wait for the device, keeps it for the end of the step.
  double micro_batch(const Batch& batch) {
    at::Tensor loss = loss_of(batch);
    const bool plain = loss.scalar_type() == at::kFloat;
    const double value = !loss.is_cpu() ? 0.0 : plain ? *loss.const_data_ptr<float>() : loss.item<double>();
    if (!loss.is_cpu() && !loss.is_meta()) losses_.push_back(loss.detach());
    device_.compute_context({fsdp::SpanKind::kCompute, fsdp::kNoUnit, fsdp::Pass::kBackward, 0});
    meter_.set_context({fsdp::kNoUnit, fsdp::Pass::kBackward});
    backward(loss);
    loss.reset();
    sharded_.scheduler().end_backward();
    return value;
  }

  fsdp::Device& device_;
  fsdp::Collectives& collectives_;
  fsdp::MemoryMeter& meter_;
  const fsdp::MicroBatches micro_batches_;
  fsdp::TensorDevice* const tensors_;
  const bool remake_;
  const std::vector<Batch> batches_;
  std::vector<at::Tensor> losses_;
  std::unique_ptr<fsdp::Module> model_;
  fsdp::ShardedModel sharded_;
  fsdp::ShardedOptimizer optimizer_;
  int next_step_ = 0;
};

Trainer::Trainer(const TrainerSettings& settings, const fsdp::UnitPlan& plan, fsdp::Device& device,
                 fsdp::Collectives& collectives, fsdp::MemoryMeter& meter) {
  fsdp::install_counting_allocators();
  use_one_thread();
  const fsdp::MeterScope scope(&meter);
  const fsdp::TensorDeviceScope there(settings.tensors);
  impl_ = std::make_unique<Impl>(settings, plan, device, collectives, meter);
}
Trainer::~Trainer() = default;

StepResult Trainer::step() { return impl_->step(); }
void Trainer::set_step(int next) { impl_->set_step(next); }
void Trainer::save(const std::string& directory) { impl_->save(directory); }
void Trainer::load(const std::string& directory) { impl_->load(directory); }
fsdp::Scheduler& Trainer::scheduler() { return impl_->scheduler(); }

std::string libtorch_version() { return TORCH_VERSION; }
std::string kernel_instruction_set() { return std::string(fsdp::kernels::instruction_set()); }

}  // namespace harness
