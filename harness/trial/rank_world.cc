#include "harness/trial/rank_world.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <algorithm>
#include <utility>

#include "fsdp/comm/gloo_transport.h"
#include "fsdp/comm/host_collectives.h"
#include "fsdp/comm/local_transport.h"
#include "fsdp/comm/rendezvous.h"
#include "fsdp/comm/wire.h"
#include "fsdp/core/errors.h"
#include "fsdp/device/host/host_device.h"
#include "fsdp/plan/shard_layout.h"
#include "harness/trace/nvtx_ranges.h"
#include "harness/trial/case_units.h"
#include "harness/workload/trainer.h"

namespace harness {
namespace {
constexpr fsdp::Nanos kDeviceSlack =
    2'000'000'000;  // the transports know more about what they wait for: they speak first

bool own_reduce_scatter(const CaseSettings& c) { return c.reduce_scatter_communicator == "own"; }

// Makes the transports of one rank, one after the other; all ranks in the same order.
class TransportMaker {
 public:
  explicit TransportMaker(const RankJob& job)
      : job_(job), timeout_(step_timeout_of(job.settings)), wire_(wire_of(job.settings)) {
    if (job.master_port != 0) {
      rendezvous_ = std::make_unique<fsdp::Rendezvous>(fsdp::Rendezvous::Options{.host = job.master_host,
                                                                                 .port = job.master_port,
                                                                                 .rank = job.rank,
                                                                                 .timeout = timeout_,
                                                                                 .listen_fd = job.listen_fd});
    } else {
      memory_ = fsdp::attach_shared_memory(job.shared_memory_fd, job.rank, job.world);
    }
  }

  // The communicator of `members`, one of which is this rank. `index` of `groups` disjoint ones that are made at once.
  std::unique_ptr<fsdp::Transport> make(const std::string& name, std::vector<int> members, int index, int groups) {
    const auto place = std::find(members.begin(), members.end(), job_.rank);
    SHARDSCOPE_CHECK(place != members.end(), "rank " + std::to_string(job_.rank));
    const int group_rank = static_cast<int>(place - members.begin());
    std::unique_ptr<fsdp::Transport> t;
    if (rendezvous_) {
      t = fsdp::make_gloo_transport(*rendezvous_, groups == 1 ? name : name + std::to_string(index), group_rank,
                                    std::move(members), timeout_);
    } else {
      t = fsdp::attach_local_transport(memory_, group_rank, std::move(members), timeout_, channel_ + index);
      channel_ += groups;
    }
    if (!wire_.on) return t;
    return std::make_unique<fsdp::EmulatedWire>(
        std::move(t), fsdp::Wire{wire_.latency_ns, static_cast<std::int64_t>(wire_.bytes_per_second)});
  }
  // Of `ranks` consecutive ranks each.
  std::unique_ptr<fsdp::Transport> make_groups(const std::string& name, int ranks) {
    const int index = job_.rank / ranks;
    return make(name, every(1, index * ranks, ranks), index, job_.world / ranks);
  }
  // Across groups of `ranks` consecutive ranks.
  std::unique_ptr<fsdp::Transport> make_across(const std::string& name, int ranks) {
    const int index = job_.rank % ranks;
    return make(name, every(ranks, index, job_.world / ranks), index, ranks);
  }

 private:
  static std::vector<int> every(int step, int first, int count) {
    std::vector<int> ranks;
    for (int i = 0; i < count; ++i) ranks.push_back(first + i * step);
    return ranks;
  }

  const RankJob& job_;
  const fsdp::Nanos timeout_;
  const Wire wire_;
  std::unique_ptr<fsdp::Rendezvous> rendezvous_;  // outlives the transports made with it
  std::shared_ptr<fsdp::SharedMemory> memory_;
  int channel_ = 0;
};

fsdp::HostTransports make_transports(const RankJob& job, const fsdp::UnitPlan& plan, TransportMaker& maker) {
  const fsdp::PlanGroups groups = fsdp::groups_of(plan, job.world);
  fsdp::HostTransports t;
  t.shard = maker.make_groups("shard", groups.shard);
  if (own_reduce_scatter(job.settings)) t.reduce_scatter = maker.make_groups("reduce_scatter", groups.shard);
  if (groups.shard < job.world) {
    t.replica = maker.make_across("replica", groups.shard);
    t.world = maker.make_groups("world", job.world);
  }
  if (groups.regather > 0) t.regather = maker.make_groups("regather", groups.regather);
  return t;
}

fsdp::HostDevice::Options device_options(const RankJob& job, fsdp::RangeSink* ranges) {
  return {job.rank, step_timeout_of(job.settings) + kDeviceSlack, !own_reduce_scatter(job.settings), ranges};
}

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
  if (c.buffer_dtype == "bf16") t.model.buffer_dtype = fsdp::Dtype::kBFloat16;
  t.batch = c.batch;
  t.seed = c.seed;
  t.optimizer = c.optimizer;
  t.accumulate = c.accumulate;
  t.sync_every = c.accumulate_sync == "every";
  t.checkpoint = c.checkpoint == "block";
  t.clip = clip_of(c);
  t.scheduler = scheduler_options_of(c, plan);
  return t;
}

PrefetchCounts prefetch_counts(const fsdp::SchedulerStats& before, const fsdp::SchedulerStats& after) {
  return {after.prefetch_hits - before.prefetch_hits, after.prefetch_misses - before.prefetch_misses,
          after.prefetch_unused - before.prefetch_unused, after.order_changes - before.order_changes};
}

class RankWorld::Impl {
 public:
  Impl(const RankJob& job, RankProgress& progress)
      : job_(job),
        plan_(named(plan_of(job.settings), progress)),
        meter_(memory_budget_of(job.settings)),
        ranges_(wanted_nvtx_ranges(names_of(plan_))),
        device_(device_options(job, ranges_.get())),
        maker_(job_),
        collectives_(device_, make_transports(job_, plan_, maker_)),
        watched_(collectives_, progress),
        trainer_(trainer_settings_of(job.settings, plan_), plan_, device_, watched_, meter_.meter) {
    result_.rank = job.rank;
  }
  ~Impl() { device_.cancel(); }  // lanes may still write into the trainer's buffers

  void barrier() { collectives_.exchange(0); }

  void step() {
    watched_.take_counts();
    const fsdp::SchedulerStats before = trainer_.scheduler().stats();
    const StepResult r = trainer_.step();
    result_.prefetch = prefetch_counts(before, trainer_.scheduler().stats());
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
    trainer_.set_step(0);
    device_.set_recording(true);
    if (ranges_) ranges_->begin_measured();
  }

  RankResult result() {
    result_.spans = device_.take_spans();
    if (ranges_) ranges_->end_measured();
    device_.set_recording(false);
    for (const fsdp::Span& s : result_.spans) {
      if (s.kind == fsdp::SpanKind::kStep) result_.traced_step_ns.push_back(s.end - s.begin);
    }
    result_.peak = meter_.meter.peak();
    result_.category_peaks = meter_.meter.peak_by_category();
    result_.peak_cause = meter_.meter.peak_cause();
    for (std::string& w : trainer_.scheduler().take_warnings()) result_.warnings.push_back(std::move(w));
    result_.environment = torch_environment();
    result_.environment["collectives"] = job_.master_port != 0 ? "gloo" : "local";
    return std::move(result_);
  }

  void abort(const std::string& reason) noexcept { collectives_.abort(reason); }

 private:
  struct BudgetedMeter {
    explicit BudgetedMeter(fsdp::Bytes budget) { meter.set_budget(budget); }
    fsdp::MemoryMeter meter;
  };

  void check_agreement() {
    const std::uint64_t mine = trainer_.scheduler().step_hash();
    const std::vector<std::uint64_t> all = collectives_.exchange(mine);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank] == mine) continue;
      throw fsdp::CommError("[agreement] ranks " + std::to_string(job_.rank) + " and " + std::to_string(rank) +
                            " have issued different collectives in this step (" + std::to_string(mine) + ", " +
                            std::to_string(all[rank]) + "); the last one of rank " + std::to_string(job_.rank) +
                            " was " + trainer_.scheduler().last_collective());
    }
  }

  const RankJob job_;
  const fsdp::UnitPlan plan_;
  BudgetedMeter meter_;
  const std::unique_ptr<NvtxRanges> ranges_;  // null: no tool watches
  fsdp::HostDevice device_;
  TransportMaker maker_;
  fsdp::HostCollectives collectives_;
  WatchedCollectives watched_;
  Trainer trainer_;
  RankResult result_;
  bool keep_numbers_ = true;
};

RankWorld::RankWorld(const RankJob& job, RankProgress& progress) : impl_(std::make_unique<Impl>(job, progress)) {}
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
