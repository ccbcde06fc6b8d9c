// What a Scheduler is made of inside. Private to the room: the four inputs are in scheduler.cc, gathers and prefetch in
// scheduler_gather.cc, gradients in scheduler_reduce.cc, events, passes and open units in scheduler_state.cc.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "fsdp/schedule/memory_gate.h"
#include "fsdp/schedule/prefetch_policy.h"
#include "fsdp/schedule/scheduler.h"
#include "fsdp/schedule/unit_state.h"

namespace fsdp {

struct Scheduler::State {
  struct Unit {
    UnitTraits traits;
    UnitState state;
    LoggedEvent gathered;     // the gather under way
    int slot = -1;            // place in the gate
    bool counted = false;     // holds a place in the gate
    bool prefetched = false;  // gathered ahead, its turn has not come yet
    int forwards = 0;         // forwards of this step whose backward is still to come
    bool in_backward = false;
    bool reduced = false;  // in this micro-batch
    bool entered = false;  // since the last reduction
    bool told_unused = false;
    bool has_gradient = false;
    bool has_group_shard = false;
  };
  struct Reduce {
    UnitId unit;
    int slot;
    LoggedEvent done;
  };
  struct Replica {
    UnitId unit;
    LoggedEvent done;
  };

  State(std::vector<UnitTraits> traits, const SchedulerOptions& o, Device& d, Collectives& c, UnitMemory& m,
        MemoryMeter* meter);
  Unit& at(UnitId u) { return units[static_cast<std::size_t>(u)]; }

  // Log and events.
  void note(const VerbEntry& e) {
    if (log != nullptr) log->push_back(e);
  }
  LoggedEvent record(Lane lane);
  void wait(Lane lane, const LoggedEvent& e, SpanKind reason = SpanKind::kWait);
  void count(CollectiveKind kind, UnitId unit, Bytes bytes, Dtype dtype);
  void locate(UnitId unit, Pass p) {
    if (meter != nullptr) meter->set_context({unit, p});
  }

  // Open units, and what the compute lane does: the innermost one's code runs between the hooks of its children.
  void resume_compute();
  void open(UnitId u);
  void close(UnitId u);  // nothing if it is not open: a unit swept at the end of backward never ran

  // Passes and their orders.
  PassOrder& order_of(Pass p) { return p == Pass::kForward ? forward : backward; }
  void enter(Pass p);
  void leave();
  void changed(const std::string& what);
  void tell_never_entered(Unit& unit);  // once for each
  void tell_mistargets();               // once per pass of a given order
  void visit(UnitId u);

  // Gathering.
  bool counts_in_gate(const Unit& unit) const { return unit.traits.reshard_after_forward; }
  // False: the gate has no place; a prefetch is put off, a demand never comes here without one.
  bool gather(UnitId u, bool prefetch);
  void send_gather(UnitId u, int slot, bool prefetch);
  void cast(UnitId u);
  void release_unsharded(UnitId u);
  void drop_group_shard(UnitId u);
  void await_gather(Unit& unit);
  void make_ready(UnitId u);  // the parameters are about to be computed with
  // Gathered ahead and not used: the memory is needed, or the pass is over.
  void drop_prefetched(UnitId u);
  void evict_prefetched();
  void free_unused();
  int depth_of(Pass p) const;
  // As far as the order followed, the depth and the gate allow: one that does not fit stops the ones behind it.
  void prefetch();
  void demand(UnitId u);  // a unit's turn: its parameters must come, and were they asked for in time?
  // Without a reduction, some units stay gathered for the next micro-batch.
  bool frees_in_backward(const Unit& unit) const {
    return unit.traits.reshard_after_backward && (sync != GradientSync::kNone || unit.traits.frees_without_sync);
  }

  // Gradients.
  void retire_oldest_reduce(SpanKind reason = SpanKind::kWait);
  void reduce(UnitId u);
  void send(UnitId u, Lane lane, int slot, CollectiveCall call);
  // Across shard groups, behind the reduce-scatter inside them; the optimizer waits for it.
  void replicate(UnitId u, const LoggedEvent& scattered);
  void await_replicas();
  void accumulate(UnitId u);      // nothing is sent: the gradients join the unit's full gradient
  void pack_alone(UnitId u);      // nobody to reduce with: gradients go straight to their place
  void take_gradients(UnitId u);  // what autograd handed over of one use of the unit

  SchedulerOptions options;
  Device& device;
  Collectives& collectives;
  UnitMemory& memory;
  MemoryMeter* meter;
  MemoryGate gate;
  std::vector<Unit> units;
  std::vector<char> gathers;
  PassOrder forward, backward;
  Pass pass = Pass::kNone;
  std::vector<UnitId> active;  // open units, outermost first
  std::vector<UnitId> window;
  std::deque<Reduce> reduces;  // in flight, oldest first
  std::deque<int> free_reduce_slots;
  std::vector<Replica> replicas;  // all-reduces across shard groups, waited for at the end of the pass
  GradientSync sync = GradientSync::kFull;
  LoggedEvent optimizer_done;
  std::uint64_t event_number = 0;
  std::uint64_t hash = 0;
  struct {
    CollectiveKind kind;
    UnitId unit;
    Pass pass;
  } last{CollectiveKind::kBarrier, kNoUnit, Pass::kNone};
  SchedulerStats stats;
  std::int64_t unused_before = 0;            // stats.prefetch_unused when the pass began
  bool told_mistargets[2] = {false, false};  // forward, backward: of an order that the user gave
  std::vector<std::string> warnings;
  VerbLog* log = nullptr;
};

}  // namespace fsdp
