// The partition of whole steps of the virtual world: the scheduler issues, the virtual clock times, the sums are exact.
#include <gtest/gtest.h>

#include "tests/analysis/timeline.h"
#include "tests/schedule/scripted_world.h"

namespace harness {
namespace {

using fsdp::BackwardPrefetch;
using fsdp::GateLimit;
using fsdp::SchedulerOptions;
using fsdp::testing::Costs;
using fsdp::testing::ScriptedWorld;

std::string steady_step(std::vector<Costs> costs, const SchedulerOptions& options, bool own = false) {
  SchedulerOptions o = options;
  o.own_reduce_scatter_communicator = own;
  ScriptedWorld w(std::move(costs), o);
  w.steady();
  const std::vector<StepPartition> steps = partition_steps(w.spans);
  EXPECT_EQ(steps.size(), 1u);
  EXPECT_EQ(sum(steps[0].classes), w.end - w.begin);
  return text_of(steps[0].classes);
}

SchedulerOptions mode(int forward, BackwardPrefetch backward) {
  SchedulerOptions o;
  o.forward_prefetch = forward;
  o.backward_prefetch = backward;
  o.max_inflight = fsdp::auto_gate(forward, backward, 1);
  return o;
}

constexpr Costs kVectors{2, 5, 10, 3};

// V26 and V27 one after the other: 17 + 35.
TEST(VirtualPartition, PrefetchInBothPassesExposesTheFirstGatherOfEachAndTheLastReduce) {
  EXPECT_EQ(steady_step(ScriptedWorld::equal(3, kVectors), mode(1, BackwardPrefetch::kPre)),
            "compute 31, overlapped 14, exposed_all_gather_forward 2, exposed_all_gather_backward 2, "
            "exposed_reduce_scatter 3");
}

// 21 + 45 (V29): nothing overlaps; the gathers of backward pay for the reduces that they queue behind.
TEST(VirtualPartition, WithoutPrefetchNothingOverlaps) {
  EXPECT_EQ(steady_step(ScriptedWorld::equal(3, kVectors), mode(0, BackwardPrefetch::kNone)),
            "compute 45, exposed_all_gather_forward 6, exposed_all_gather_backward 12, exposed_reduce_scatter 3");
}

// V34 in backward.
TEST(VirtualPartition, CommunicationBoundBackward) {
  ScriptedWorld w(ScriptedWorld::equal(3, {6, 10, 10, 7}), mode(1, BackwardPrefetch::kPre));
  w.steady();
  const StepPartition p = partition_steps(w.spans).at(0);
  EXPECT_EQ(p.classes[static_cast<int>(PartitionClass::kExposedAllGatherBackward)], 9);
  EXPECT_EQ(p.classes[static_cast<int>(PartitionClass::kExposedReduceScatter)], 7);
}

// V36: five units, the reduce-scatter of unit 3 takes 25. A compute that lacks a slot for its reduce waits for memory;
// on one communicator the gather behind that reduce is what is waited for, whatever the slots.
TEST(VirtualPartition, V36SlotsOfReduceScatterAreMemoryWait) {
  const auto backward = [](int slots, bool own) {
    std::vector<Costs> costs(5, {2, 5, 10, 2});
    costs[3].reduce = 25;
    SchedulerOptions o = mode(1, BackwardPrefetch::kPre);
    o.max_inflight = {GateLimit::Kind::kNone, 0};
    o.reduce_scatter_slots = slots;
    return steady_step(std::move(costs), o, own);
  };
  const std::string forward = ", exposed_all_gather_forward 2, exposed_all_gather_backward ";
  EXPECT_EQ(backward(1, true), "compute 43, overlapped 32" + forward + "2, exposed_reduce_scatter 2, memory_wait 15");
  EXPECT_EQ(backward(2, true), "compute 33, overlapped 42" + forward + "2, exposed_reduce_scatter 2, memory_wait 5");
  EXPECT_EQ(backward(5, true), "compute 28, overlapped 47" + forward + "2, exposed_reduce_scatter 2");
  EXPECT_EQ(backward(5, false), "compute 45, overlapped 30" + forward + "19, exposed_reduce_scatter 2");
}

// n equal units that hide their communication: exactly g, g and r are exposed, whatever n.
TEST(VirtualPartition, ClosedFormForManyUnits) {
  for (int n : {1, 2, 8, 64}) {
    ScriptedWorld w(ScriptedWorld::equal(n, kVectors), mode(1, BackwardPrefetch::kPre));
    w.steady();
    const StepPartition p = partition_steps(w.spans).at(0);
    EXPECT_EQ(sum(p.classes), 2 + 5 * n + 2 + 10 * n + 3);
    EXPECT_EQ(exposed(p.classes), 7);
    EXPECT_EQ(p.communication, n * (2 + 2 + 3));
    EXPECT_EQ(p.communication_hidden, n * (2 + 2 + 3) - 7);
  }
}

}  // namespace
}  // namespace harness
