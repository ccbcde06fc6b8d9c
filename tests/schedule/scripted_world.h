// A scheduler over the virtual device: equal or unlike units with given costs, one whole step at a time.
#pragma once
#include <string>
#include <vector>

#include "fsdp/device/virtual/virtual_device.h"
#include "fsdp/schedule/scripted_step.h"

namespace fsdp::testing {

struct Costs {
  Nanos gather = 2, forward = 5, backward = 10, reduce = 3;
};

// What happened to each unit in the last step, times relative to the begin of its pass.
struct Interval {
  Nanos begin = 0, end = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

class ScriptedWorld {
 public:
  explicit ScriptedWorld(std::vector<Costs> costs, SchedulerOptions options = {}, Nanos launch = 0)
      : costs_(std::move(costs)),
        options_(std::move(options)),
        device_(launch),
        collectives_(device_, 2, [this](const CollectiveCall& c) {
          const Costs& u = costs_[static_cast<std::size_t>(c.unit)];
          return c.kind == CollectiveKind::kAllGather ? u.gather : u.reduce;
        }) {
    for (std::size_t i = 0; i < costs_.size(); ++i) {
      UnitTraits t;
      t.name = std::to_string(i);
      t.unsharded_bytes = unit_bytes_;
      traits_.push_back(t);
      bytes_.push_back({.parameters = unit_bytes_ / 2,
                        .unsharded = unit_bytes_,
                        .reduce = unit_bytes_,
                        .gradient = unit_bytes_ / 2,
                        .accumulated = unit_bytes_});
    }
    script_ = sequence_script(static_cast<int>(costs_.size()));
    device_.set_recording(true);
  }
  static std::vector<Costs> equal(int n, Costs c) { return std::vector<Costs>(static_cast<std::size_t>(n), c); }

  std::vector<UnitTraits>& traits() { return traits_; }
  Script& script() { return script_; }
  // Of the unit's full parameters; before the first step.
  void set_bytes(UnitId u, Bytes n) {
    const auto i = static_cast<std::size_t>(u);
    traits_[i].unsharded_bytes = bytes_[i].unsharded = n;
  }
  Scheduler& scheduler() {
    if (!scheduler_) {
      memory_ = std::make_unique<CountingUnitMemory>(bytes_, std::vector<bool>(bytes_.size(), false), meter_);
      scheduler_ = std::make_unique<Scheduler>(traits_, options_, device_, collectives_, *memory_, &meter_);
    }
    return *scheduler_;
  }
  MemoryMeter& meter() { return meter_; }
  VirtualDevice& device() { return device_; }
  // The host waits for each forward compute to end.
  bool host_blocks_in_forward = false;
  MicroBatches micro_batches;

  void step() {
    log.clear();
    scheduler().set_log(&log);
    run_scripted_step(
        scheduler(), device_, steps_++, script_, [this](Pass p, UnitId u) { charge(p, u); }, micro_batches);
    spans = device_.take_spans();
    begin = forward_end = 0;
    for (const Span& s : spans)
      if (s.kind == SpanKind::kStep) begin = s.begin, end = s.end;
    for (const Span& s : spans)
      if (s.kind == SpanKind::kCompute && s.pass == Pass::kForward) forward_end = std::max(forward_end, s.end);
  }
  // Two steps: the first records the order, the second follows it.
  void steady() { step(), step(); }

  Nanos forward_time() const { return forward_end - begin; }
  Nanos backward_time() const { return end - forward_end; }
  Interval gather(UnitId u, Pass p) const { return find(SpanKind::kAllGather, u, p); }
  Interval compute(UnitId u, Pass p) const { return find(SpanKind::kCompute, u, p); }
  Interval reduce(UnitId u) const { return find(SpanKind::kReduceScatter, u, Pass::kBackward); }
  // Only the collectives and computes of one pass.
  std::string order(Pass p, bool with_compute) const {
    VerbLog part;
    for (const VerbEntry& e : log)
      if (e.pass == p) part.push_back(e);
    return with_compute ? cpu_order(part) : collective_order(part);
  }

  VerbLog log;
  std::vector<Span> spans;
  Nanos begin = 0, end = 0, forward_end = 0;

 private:
  void charge(Pass p, UnitId u) {
    if (p == Pass::kOptimizer) return;
    const Costs& c = costs_[static_cast<std::size_t>(u)];
    device_.charge(Lane::kCompute, {SpanKind::kCompute, u, p, 0}, p == Pass::kForward ? c.forward : c.backward);
    if (p == Pass::kForward && host_blocks_in_forward) device_.synchronize(device_.record(Lane::kCompute));
  }
  Interval find(SpanKind k, UnitId u, Pass p) const {
    const Nanos base = p == Pass::kForward ? begin : forward_end;
    for (const Span& s : spans)
      if (s.kind == k && s.unit == u && s.pass == p) return {s.begin - base, s.end - base};
    return {-1, -1};
  }

  static constexpr Bytes unit_bytes_ = 1024;
  std::vector<Costs> costs_;
  SchedulerOptions options_;
  VirtualDevice device_;
  VirtualCollectives collectives_;
  MemoryMeter meter_;
  std::vector<UnitTraits> traits_;
  std::vector<UnitBytes> bytes_;
  Script script_;
  std::unique_ptr<CountingUnitMemory> memory_;
  std::unique_ptr<Scheduler> scheduler_;
  int steps_ = 0;
};

}  // namespace fsdp::testing
