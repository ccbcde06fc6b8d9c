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
#include "fsdp/module/torch.h"
#include "fsdp/schedule/scripted_step.h"
#include "harness/workload/models.h"
#include "harness/workload/synthetic_data.h"

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

struct Batch {
  at::Tensor inputs, targets;
};
// `index` counts batches of all ranks.
Batch make_batch(const TrainerSettings& s, int index) {
  const fsdp::CategoryScope scope(fsdp::MemoryCategory::kOther);
  const std::int64_t seq = s.model.seq;
  const auto options = at::TensorOptions().dtype(at::kLong).device(s.meta ? at::kMeta : at::kCPU);
  Batch b{at::empty({s.batch, seq}, options), at::empty({s.batch, seq}, options)};
  if (s.meta) return b;
  const auto tokens = synthetic_tokens(s.seed, index * s.batch, s.batch, seq, s.model.vocab);
  for (std::int64_t i = 0; i < s.batch; ++i) {
    const auto row = tokens.begin() + i * (seq + 1);
    std::copy(row, row + seq, b.inputs.mutable_data_ptr<std::int64_t>() + i * seq);
    std::copy(row + 1, row + seq + 1, b.targets.mutable_data_ptr<std::int64_t>() + i * seq);
  }
  return b;
}
std::vector<Batch> make_batches(const TrainerSettings& s, const fsdp::Collectives& collectives) {
  std::vector<Batch> batches;
  for (int k = 0; k < s.accumulate; ++k) batches.push_back(make_batch(s, k * collectives.world() + collectives.rank()));
  return batches;
}

std::unique_ptr<fsdp::Module> make_model(const TrainerSettings& s) {
  auto model = build_model(s.model, s.meta);
  for (fsdp::Module* m : fsdp::modules_of(*model)) m->set_checkpointed(s.checkpoint && m->is_block());
  return model;
}

fsdp::OptimizerOptions optimizer_options(const TrainerSettings& s) {
  fsdp::OptimizerOptions o;
  o.kind = optimizer_of(s.optimizer);
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
        batches_(make_batches(s, collectives)),
        model_(make_model(s)),
        sharded_(*model_, plan, {s.meta, s.seed, s.scheduler}, device, collectives, &meter),
        optimizer_(sharded_, optimizer_options(s), device, collectives) {}

  StepResult step() {
    const fsdp::MeterScope scope(&meter_);
    device_.begin_step(next_step_++);
    sharded_.scheduler().begin_step();
    StepResult r;
    for (int k = 0; k < micro_batches_.count; ++k) {
      sharded_.scheduler().set_gradient_sync(micro_batches_.sync(k));
      r.loss += micro_batch(batches_[static_cast<std::size_t>(k)]) / micro_batches_.count;
    }
    r.gradient_square_sum = optimizer_.step();
    device_.end_step();
    return r;
  }

  void set_step(int next) { next_step_ = next; }
  void save(const std::string& directory) { fsdp::save_state(sharded_, optimizer_, collectives_, directory); }
  void load(const std::string& directory) { fsdp::load_state(sharded_, optimizer_, collectives_, directory); }
  fsdp::Scheduler& scheduler() { return sharded_.scheduler(); }

 private:
  // Returns the loss.
  double micro_batch(const Batch& batch) {
    at::Tensor loss = fsdp::ops::cross_entropy((*model_)(batch.inputs), batch.targets);
    const double value = loss.is_cpu() ? static_cast<double>(*loss.const_data_ptr<float>()) : 0.0;
    device_.compute_context({fsdp::SpanKind::kCompute, fsdp::kNoUnit, fsdp::Pass::kBackward, 0});
    meter_.set_context({fsdp::kNoUnit, fsdp::Pass::kBackward});
    if (micro_batches_.count == 1)
      loss.backward();
    else
      loss.backward(at::full({}, 1.0 / micro_batches_.count, loss.options().requires_grad(false)));
    loss.reset();
    sharded_.scheduler().end_backward();
    return value;
  }

  fsdp::Device& device_;
  fsdp::Collectives& collectives_;
  fsdp::MemoryMeter& meter_;
  const fsdp::MicroBatches micro_batches_;
  const std::vector<Batch> batches_;
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
