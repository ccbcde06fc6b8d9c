#include "harness/trial/virtual_world.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "harness/cost/caching_allocator.h"
#include "harness/trial/case_costs.h"
#include "harness/trial/case_units.h"
#include "harness/trial/rank_world.h"
#include "harness/trial/virtual_clock.h"
#include "harness/workload/trainer.h"

namespace harness {
namespace {

std::vector<std::string> names_of(const fsdp::UnitPlan& plan) {
  std::vector<std::string> names;
  for (const fsdp::UnitSpec& unit : plan.units) names.push_back(unit.name);
  return names;
}

fsdp::VirtualDeviceOptions device_options(const Hardware& h) {
  fsdp::VirtualDeviceOptions o;
  o.host_computes = !h.gpu;
  o.wake_ns = static_cast<fsdp::Nanos>(h.wake_us * 1e3);
  return o;
}

// Computations of one unit and pass that follow each other without a gap become one span; a span that others wait for
// stays the last of its stretch.
std::vector<fsdp::Span> joined(const std::vector<fsdp::Span>& spans) {
  std::unordered_set<std::uint32_t> awaited;
  for (const fsdp::Span& s : spans) awaited.insert(s.waits.begin(), s.waits.end());
  std::unordered_map<std::uint32_t, std::uint32_t> became;
  std::vector<fsdp::Span> out;
  std::ptrdiff_t open = -1;  // the stretch that may go on
  for (const fsdp::Span& s : spans) {
    if (s.lane != fsdp::Lane::kCompute) {
      out.push_back(s);
      continue;
    }
    fsdp::Span* last = open < 0 ? nullptr : &out[static_cast<std::size_t>(open)];
    if (last && last->kind == s.kind && last->unit == s.unit && last->pass == s.pass && last->step == s.step &&
        last->end == s.begin && s.waits.empty()) {
      last->end = s.end;
      became[s.id] = last->id;
    } else {
      open = static_cast<std::ptrdiff_t>(out.size());
      out.push_back(s);
    }
    if (awaited.count(s.id)) open = -1;
  }
  for (fsdp::Span& s : out) {
    for (std::uint32_t& id : s.waits)
      if (const auto at = became.find(id); at != became.end()) id = at->second;
  }
  return out;
}

void describe(const CostModel& m, int communicators, std::map<std::string, std::string>& environment) {
  const Hardware& h = m.hardware();
  environment["collectives"] = "virtual";
  environment["predicted_hardware"] = h.name;
  environment["predicted_hardware_source"] = h.source;
  if (!m.topology().network.name.empty()) environment["predicted_network"] = m.topology().network.name;
  std::string assumed;
  for (const std::string& a : h.assumed) assumed += (assumed.empty() ? "" : ", ") + a;
  if (!assumed.empty()) environment["predicted_from_assumed"] = assumed;
  // Constants of one GPU on another: published rows of a third lay within this of the prediction, all of them.
  constexpr double kSpread = 1.25;
  if (h.gpu && std::find(h.assumed.begin(), h.assumed.end(), "device") != h.assumed.end()) {
    environment["predicted_step_low"] = std::to_string(1 / kSpread);
    environment["predicted_step_high"] = std::to_string(kSpread);
  }
  environment["predicted_ranks"] = std::to_string(m.topology().world);
  if (h.expected_error > 0) {
    environment["predicted_error_median"] = std::to_string(h.expected_error);
    environment["predicted_error_source"] = h.expected_error_source;
  }
  if (const MemoryExtras e = m.memory_extras(communicators); e.total() > 0) {
    environment["predicted_context_bytes"] = std::to_string(e.context);
    environment["predicted_communicator_bytes"] = std::to_string(e.communicators);
    environment["predicted_workspace_bytes"] = std::to_string(e.workspace);
  }
}

class VirtualWorld {
 public:
  VirtualWorld(const RankJob& job, RankProgress& progress)
      : model_(cost_model_of(job.settings)),
        plan_(plan_of(job.settings)),
        device_(device_options(model_.hardware())),
        clock_(model_, job.settings.world, job.settings.wire, job.settings.arrival_skew, device_),
        watched_(clock_, progress),
        progress_(progress),
        allocator_(std::max<fsdp::Bytes>(0, job.settings.memory_budget)) {
    progress.set_unit_names(names_of(plan_));
    meter_.set_budget(job.settings.memory_budget);
    if (model_.hardware().caching_allocator) meter_.set_observer(&allocator_);
    TrainerSettings t = trainer_settings_of(job.settings, plan_);
    t.meta = true;
    t.remake = !model_.hardware().gpu;
    trainer_ = std::make_unique<Trainer>(t, plan_, device_, watched_, meter_);
  }

  VirtualRun run(const CaseSettings& c, bool with_spans) {
    VirtualRun out;
    progress_.set_phase(RankProgress::Phase::kWarmup);
    step();
    watched_.take_counts();
    progress_.set_phase(RankProgress::Phase::kTraced);
    trainer_->set_step(0);
    const fsdp::Nanos begin = device_.next_begin(fsdp::Lane::kCompute);
    device_.set_recording(with_spans);
    first_refusals_ = allocator_.take_refusals();
    const fsdp::SchedulerStats before = trainer_->scheduler().stats();
    step();
    out.result.prefetch = prefetch_counts(before, trainer_->scheduler().stats());
    out.step_ns = device_.next_begin(fsdp::Lane::kCompute) - begin;
    fill(out.result, c);
    return out;
  }

 private:
  void step() {
    clock_.begin_step();
    const OpObserverScope scope(clock_);
    trainer_->step();
  }

  void fill(RankResult& r, const CaseSettings& c) {
    r.spans = joined(device_.take_spans());
    for (const fsdp::Span& s : r.spans) {
      if (s.kind == fsdp::SpanKind::kStep) r.traced_step_ns.push_back(s.end - s.begin);
    }
    const WatchedCollectives::Counts counts = watched_.take_counts();
    r.collectives_per_step = counts.calls;
    r.communicated_bytes_per_step = counts.sent;
    r.peak = meter_.peak();
    r.category_peaks = meter_.peak_by_category();
    r.peak_cause = meter_.peak_cause();
    r.warnings = trainer_->scheduler().take_warnings();
    if (!c.hardware.costs)
      r.warnings.push_back(
          "no hardware was named: times are those of an assumed processor core; memory is that of this program's own "
          "run");
    r.environment = torch_environment();
    describe(model_, count_communicators(c), r.environment);
    r.environment["predicted_contention_ns"] = std::to_string(clock_.totals().contention_ns);
    if (clock_.totals().late_ns > 0) r.environment["predicted_straggler_ns"] = std::to_string(clock_.totals().late_ns);
    if (model_.hardware().caching_allocator) describe_allocator(r);
  }

  // The allocator below the counted bytes. Retries: of the last step, as of all later ones; failures: of any.
  void describe_allocator(RankResult& r) {
    const CachingAllocator::Peak peak = allocator_.peak();
    const CachingAllocator::Refusals refusals = allocator_.take_refusals();
    r.environment["predicted_reserved_bytes"] = std::to_string(peak.reserved);
    r.environment["predicted_rounding_bytes"] = std::to_string(peak.rounding());
    r.environment["predicted_cached_bytes"] = std::to_string(peak.cached());
    r.environment["predicted_allocator_retries"] = std::to_string(refusals.retries);
    r.environment["predicted_allocator_failures"] = std::to_string(first_refusals_.failures + refusals.failures);
  }

  const CostModel model_;
  const fsdp::UnitPlan plan_;
  fsdp::MemoryMeter meter_;
  fsdp::VirtualDevice device_;
  VirtualClock clock_;
  WatchedCollectives watched_;
  RankProgress& progress_;
  CachingAllocator allocator_;
  CachingAllocator::Refusals first_refusals_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace

VirtualRun run_virtual(const RankJob& job, RankProgress& progress, bool with_spans) {
  return VirtualWorld(job, progress).run(job.settings, with_spans);
}

}  // namespace harness
