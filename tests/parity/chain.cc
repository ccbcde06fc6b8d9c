#include "tests/parity/chain.h"

#include <c10/core/AutogradState.h>

#include "fsdp/module/counting_allocator.h"
#include "fsdp/module/fully_shard.h"
#include "fsdp/module/ops.h"
#include "fsdp/module/sharded_optimizer.h"
#include "fsdp/module/sharded_state.h"
#include "fsdp/module/torch.h"
#include "fsdp/schedule/scripted_step.h"
#include "harness/workload/batch.h"
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

std::unique_ptr<Chain> make_chain(const TrainerSettings& s, std::vector<int> order) {
  auto chain = std::make_unique<Chain>(s.model, std::move(order));
  fsdp::name_modules(*chain);
  for (fsdp::Module* m : fsdp::modules_of(*chain)) m->set_checkpointed(s.checkpoint && m->is_block());
  return chain;
}

fsdp::OptimizerOptions optimizer_options(const TrainerSettings& s) {
  fsdp::OptimizerOptions o;
  o.adamw.eps = s.adamw_epsilon;
  o.clip = s.clip;
  return o;
}

}  // namespace

fsdp::ModuleTree describe_chain(const ModelSettings& m) {
  Chain chain(m, {});
  fsdp::name_modules(chain);
  return fsdp::tree_of(chain);
}

class ChainTrainer::Impl {
 public:
  Impl(const TrainerSettings& s, const std::vector<int>& order, const fsdp::UnitPlan& plan, fsdp::Device& device,
       fsdp::Collectives& collectives, fsdp::MemoryMeter& meter)
      : device_(device),
        collectives_(collectives),
        meter_(meter),
        micro_batches_{s.accumulate, s.sync_every},
        chain_(make_chain(s, order)),
        sharded_(*chain_, plan, {s.meta, s.seed, s.scheduler}, device, collectives, &meter),
        optimizer_(sharded_, optimizer_options(s), device, collectives) {
    for (int k = 0; k < s.accumulate; ++k) {
      const std::int64_t index = static_cast<std::int64_t>(k) * collectives.world() + collectives.rank();
      batches_.push_back(make_batch(s.model, s.seed, index * s.batch, s.batch, s.meta));
    }
  }

  StepResult step() {
    const fsdp::MeterScope scope(&meter_);
    device_.begin_step(next_step_++);
    sharded_.scheduler().begin_step();
    StepResult r;
    for (int k = 0; k < micro_batches_.count; ++k) {
      sharded_.scheduler().set_gradient_sync(micro_batches_.sync(k));
      const Batch& batch = batches_[static_cast<std::size_t>(k)];
      at::Tensor loss = fsdp::ops::cross_entropy((*chain_)(batch.inputs), batch.targets);
      if (loss.is_cpu()) r.loss += static_cast<double>(*loss.const_data_ptr<float>()) / micro_batches_.count;
      device_.compute_context({fsdp::SpanKind::kCompute, fsdp::kNoUnit, fsdp::Pass::kBackward, 0});
      meter_.set_context({fsdp::kNoUnit, fsdp::Pass::kBackward});
      loss.backward(at::full({}, 1.0 / micro_batches_.count, loss.options().requires_grad(false)));
      loss.reset();
      sharded_.scheduler().end_backward();
    }
    r.gradient_square_sum = optimizer_.step();
    device_.end_step();
    return r;
  }
  void save(const std::string& directory) { fsdp::save_state(sharded_, optimizer_, collectives_, directory); }

 private:
  fsdp::Device& device_;
  fsdp::Collectives& collectives_;
  fsdp::MemoryMeter& meter_;
  const fsdp::MicroBatches micro_batches_;
  std::vector<Batch> batches_;
  std::unique_ptr<Chain> chain_;
  fsdp::ShardedModel sharded_;
  fsdp::ShardedOptimizer optimizer_;
  int next_step_ = 0;
};

ChainTrainer::ChainTrainer(const TrainerSettings& settings, const std::vector<int>& order, const fsdp::UnitPlan& plan,
                           fsdp::Device& device, fsdp::Collectives& collectives, fsdp::MemoryMeter& meter) {
  fsdp::install_counting_allocators();
  at::set_num_threads(1);
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  const fsdp::MeterScope scope(&meter);
  impl_ = std::make_unique<Impl>(settings, order, plan, device, collectives, meter);
}
ChainTrainer::~ChainTrainer() = default;
StepResult ChainTrainer::step() { return impl_->step(); }
void ChainTrainer::save(const std::string& directory) { impl_->save(directory); }

}  // namespace harness
