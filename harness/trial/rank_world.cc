#include "harness/trial/rank_world.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "fsdp/core/errors.h"
#include "harness/trace/cupti_session.h"
#include "harness/trace/nvtx_ranges.h"
#include "harness/trial/case_units.h"
#include "harness/trial/rank_backend.h"
#include "harness/workload/trainer.h"

namespace harness {
namespace {
std::vector<std::string> names_of(const fsdp::UnitPlan& plan) {
  std::vector<std::string> names;
  for (const fsdp::UnitSpec& unit : plan.units) names.push_back(unit.name);
  return names;
}

// The names first: causes and progress need them from the first allocation on.
fsdp::UnitPlan named(fsdp::UnitPlan plan, RankProgress& progress) {
  progress.set_unit_names(names_of(plan));
  return plan;
}
}  // namespace

TrainerSettings trainer_settings_of(const CaseSettings& c, const fsdp::UnitPlan& plan) {
  TrainerSettings t;
  t.model = model_of(c);
  t.model.seq = seq_of(c);
  t.model.buffer_dtype = c.buffer_dtype;
  t.batch = c.batch;
  t.seed = c.seed;
  t.optimizer = c.optimizer;
  t.accumulate = c.accumulate;
  t.sync_every = c.accumulate_sync == AccumulateSync::kEvery;
  t.checkpoint = c.checkpoint == Checkpoint::kBlock;
  t.clip = c.clip;
  t.scheduler = scheduler_options_of(c, plan);
  return t;
}

PrefetchCounts prefetch_counts(const fsdp::SchedulerStats& before, const fsdp::SchedulerStats& after) {
  return {after.prefetch_hits - before.prefetch_hits, after.prefetch_misses - before.prefetch_misses,
          after.prefetch_unused - before.prefetch_unused, after.order_changes - before.order_changes};
}

class RankWorld::Impl {
 public:
  Impl(const RankJob& job, RankProgress& progress, fsdp::Rendezvous* rendezvous)
      : job_(job),
        plan_(named(plan_of(job.settings), progress)),
        ranges_(wanted_nvtx_ranges(names_of(plan_))),
        cupti_(job.settings.device == DeviceKind::kCuda
                   ? CuptiSession::wanted([](const char* name) -> const char* { return std::getenv(name); })
                   : nullptr),
        backend_(job.settings.device == DeviceKind::kCuda
                     ? make_cuda_backend(job_, plan_, cupti_ ? cupti_->tags(ranges_.get()) : ranges_.get(),
                                         {progress, rendezvous})
                     : make_host_backend(job_, plan_, ranges_.get(), {progress, rendezvous})),
        device_(backend_->device()),
        collectives_(backend_->collectives()),
        watched_(collectives_, progress) {
    if (backend_->meters_budget()) meter_.set_budget(job.settings.memory_budget);
    TrainerSettings settings = trainer_settings_of(job.settings, plan_);
    settings.tensors = backend_->tensors();
    settings.remake = settings.tensors == nullptr;
    with_figures([&] { trainer_ = std::make_unique<Trainer>(settings, plan_, device_, watched_, meter_); });
    result_.rank = job.rank;
  }
  ~Impl() { backend_->cancel(); }  // lanes may still write into the trainer's buffers

  void barrier() { collectives_.exchange(0); }

  void step() {
    watched_.take_counts();
    const fsdp::SchedulerStats before = trainer_->scheduler().stats();
    StepResult r;
    with_figures([&] { r = trainer_->step(); });
    result_.prefetch = prefetch_counts(before, trainer_->scheduler().stats());
    if (cupti_) cupti_->step();
    const WatchedCollectives::Counts counts = watched_.take_counts();
    result_.collectives_per_step = counts.calls;
    result_.communicated_bytes_per_step = counts.sent;
    if (keep_numbers_) {
      result_.losses.push_back(r.loss);
      result_.gradient_square_sums.push_back(r.gradient_square_sum);
    }
    check_agreement();
  }

  void stop_keeping_numbers() { keep_numbers_ = false; }

  void begin_trace() {
    trainer_->set_step(0);
    device_.set_recording(true);
    if (ranges_) ranges_->begin_measured();
    if (cupti_) cupti_->begin();
  }

  RankResult result() {
    result_.spans = device_.take_spans();
    if (ranges_) ranges_->end_measured();
    device_.set_recording(false);
    for (const fsdp::Span& s : result_.spans) {
      if (s.kind == fsdp::SpanKind::kStep) result_.traced_step_ns.push_back(s.end - s.begin);
    }
    result_.peak = meter_.peak();
    result_.category_peaks = meter_.peak_by_category();
    result_.peak_cause = meter_.peak_cause();
    for (std::string& w : trainer_->scheduler().take_warnings()) result_.warnings.push_back(std::move(w));
    result_.environment = torch_environment();
    backend_->complete(result_);
    if (cupti_) {
      const CuptiReport gpu = cupti_->finish(job_.rank, result_.spans);
      result_.environment.insert(gpu.fields.begin(), gpu.fields.end());
      result_.warnings.insert(result_.warnings.end(), gpu.warnings.begin(), gpu.warnings.end());
    }
    return std::move(result_);
  }

  void abort(const std::string& reason) noexcept { backend_->abort(reason); }

 private:
  // An out-of-memory of the device's own allocator is one like the meter's, with the allocator's figures.
  template <class F>
  void with_figures(F work) {
    try {
      work();
    } catch (const fsdp::OutOfMemory& e) {
      const std::string figures = backend_->memory_figures();
      if (figures.empty()) throw;
      const std::string cause =
          !e.cause.empty() ? e.cause : meter_.describe(meter_.context(), fsdp::MemoryCategory::kReduce);
      throw fsdp::OutOfMemory(e.what() + ("; " + figures), cause, e.requested, meter_.live(), e.budget);
    } catch (const c10::OutOfMemoryError&) {
      const std::string cause = meter_.describe(meter_.context(), fsdp::MemoryCategory::kActivations);
      throw fsdp::OutOfMemory("[memory] " + cause + ": no memory left on the device; " + backend_->memory_figures(),
                              cause, 0, meter_.live(), job_.settings.memory_budget);
    }
  }

  void check_agreement() {
    const std::uint64_t mine = trainer_->scheduler().step_hash();
    const std::vector<std::uint64_t> all = collectives_.exchange(mine);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank] == mine) continue;
      throw fsdp::CommError("[agreement] ranks " + std::to_string(job_.rank) + " and " + std::to_string(rank) +
                            " have issued different collectives in this step (" + std::to_string(mine) + ", " +
                            std::to_string(all[rank]) + "); the last one of rank " + std::to_string(job_.rank) +
                            " was " + trainer_->scheduler().last_collective());
    }
  }

  const RankJob job_;
  const fsdp::UnitPlan plan_;
  fsdp::MemoryMeter meter_;
  const std::unique_ptr<NvtxRanges> ranges_;   // null: no tool watches
  const std::unique_ptr<CuptiSession> cupti_;  // null: not asked for, or no GPU
  const std::unique_ptr<RankBackend> backend_;
  fsdp::Device& device_;
  fsdp::Collectives& collectives_;
  WatchedCollectives watched_;
  std::unique_ptr<Trainer> trainer_;
  RankResult result_;
  bool keep_numbers_ = true;
};

RankWorld::RankWorld(const RankJob& job, RankProgress& progress, fsdp::Rendezvous* rendezvous)
    : impl_(std::make_unique<Impl>(job, progress, rendezvous)) {}
RankWorld::~RankWorld() = default;
void RankWorld::barrier() { impl_->barrier(); }
void RankWorld::step() { impl_->step(); }
void RankWorld::stop_keeping_numbers() { impl_->stop_keeping_numbers(); }
void RankWorld::begin_trace() { impl_->begin_trace(); }
RankResult RankWorld::result() { return impl_->result(); }
void RankWorld::abort(const std::string& reason) noexcept { impl_->abort(reason); }

std::map<std::string, std::string> torch_environment() {
  return {{"libtorch", libtorch_version()},
          {"libtorch_cpu", at::get_cpu_capability()},
          {"kernels", kernel_instruction_set()},
          {"cpu_threads", std::to_string(at::get_num_threads())}};
}

}  // namespace harness
