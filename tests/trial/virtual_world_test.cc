// The virtual world against the host's: the same bytes, the same collectives in the same order, and times that follow
// from the costs.
#include "harness/trial/virtual_world.h"

#include <gmock/gmock.h>

#include <fstream>

#include "fsdp/core/errors.h"
#include "harness/cost/hardware.h"
#include "harness/trial/virtual_clock.h"
#include "tests/trial/both_worlds.h"

namespace harness {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

CaseSettings with(const Settings& settings) {
  CaseSettings c;
  apply_setting(c, "set", "layers=3,dim=64,heads=4,ffn=176,vocab=131");
  for (const auto& [name, text] : settings) apply_setting(c, name, text);
  return c;
}

Settings joined(Settings a, const Settings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Every model x wrap x strategy x checkpointing, and what else changes memory or order, once for each model.
const std::vector<Settings>& matrix() {
  static const std::vector<Settings> cases = [] {
    struct Model {
      Settings settings;
      const char* finest;  // wrap, finer than a sublayer or across them
    };
    const std::vector<Model> models = {
        {{{"model", "llama"}}, "class:Linear"},
        {{{"model", "gpt-neox"}}, "class:Linear"},
        {{{"model", "gpt2"}, {"seq", "16"}}, "class:Conv1D"},
        {{{"model", "t5"}, {"seq", "16"}}, "class:T5Attention"},
        {{{"model", "embedding-classifier"},
          {"set", "layers=3,dim=64,heads=4,ffn=176,vocab=1031,classes=19"},
          {"seq", "16"}},
         "class:Conv1D"},
        {{{"model", "mlp"}, {"set", "layers=3,dim=64,ffn=176,classes=19"}, {"seq", "16"}}, "class:Linear"},
    };
    std::vector<Settings> out;
    for (const auto& [model, finest] : models) {
      for (const char* wrap : {"root", "block", "blocks:2", "sublayer", "size:20000", finest})
        for (const char* strategy : {"full_shard", "shard_grad_op", "no_shard"})
          for (const char* checkpoint : {"none", "block"})
            out.push_back(joined(model, {{"wrap", wrap}, {"strategy", strategy}, {"checkpoint", checkpoint}}));
      for (const Settings& more : std::vector<Settings>{{{"accumulate", "2"}},
                                                        {{"accumulate", "2"}, {"accumulate_sync", "every"}},
                                                        {{"param_dtype", "bf16"}},
                                                        {{"param_dtype", "bf16"}, {"reduce_dtype", "bf16"}},
                                                        {{"layout", "per_parameter"}},
                                                        {{"backward_prefetch", "none"}},
                                                        {{"backward_prefetch", "post"}},
                                                        {{"forward_prefetch", "0"}},
                                                        {{"forward_prefetch", "2"}},
                                                        {{"reshard_after_forward", "false"}},
                                                        {{"optimizer", "sgd"}},
                                                        {{"batch", "3"}},
                                                        {{"clip", "1"}}}) {
        out.push_back(joined(model, more));
      }
    }
    return out;
  }();
  return cases;
}

TEST(VirtualWorld, PeakMemoryIsTheHostsToTheByteAndTheScheduleIsTheSame) {
  for (const Settings& s : matrix()) {
    SCOPED_TRACE(testing::PrintToString(s));
    const CaseSettings c = with(s);
    EXPECT_THAT(differences(on_host(c), predicted(c)), testing::IsEmpty());
  }
}

// Nothing is reduce-scattered where every rank holds all of a unit, and so no communicator is made for it.
TEST(VirtualWorld, UnitsThatAreWholeEverywhereTakeAReduceScatterCommunicatorOfTheirOwnForNothing) {
  for (const char* strategy : {"no_shard", "hybrid_shard:1"}) {
    SCOPED_TRACE(strategy);
    const CaseSettings c = with({{"strategy", strategy}, {"reduce_scatter_communicator", "own"}}),
                       shared = with({{"strategy", strategy}});
    const RankResult host = on_host(c);
    EXPECT_THAT(differences(host, predicted(c)), testing::IsEmpty());
    EXPECT_EQ(schedule(host.spans), schedule(on_host(shared).spans));
  }
}

TEST(VirtualWorld, ALateRankMakesEveryCollectiveOfItsGroupThatMuchLonger) {
  const auto lengths = [](const char* skew) {
    std::vector<fsdp::Nanos> out;
    for (const fsdp::Span& s :
         predicted(with({{"world", "16"}, {"hardware", "h100-sxm"}, {"arrival_skew", skew}})).spans)
      if (fsdp::is_collective(s.kind)) out.push_back(s.end - s.begin);
    return out;
  };
  const std::vector<fsdp::Nanos> together = lengths("none"), late = lengths("3:250us,7:100us"),
                                 all_late = lengths("0:1ms,3:250us");
  ASSERT_EQ(late.size(), together.size());
  for (std::size_t i = 0; i < late.size(); ++i) EXPECT_EQ(late[i], together[i] + 250'000);
  EXPECT_EQ(all_late, together) << "the rank that stands for all is the last one itself";
}

TEST(VirtualWorld, ArrivalCountsForMembersAlone) {
  const ArrivalSkew skew = {{3, 250}, {8, 100}};
  EXPECT_EQ(arrival_wait(skew, 4, 1), 250);  // ranks 0 to 3
  EXPECT_EQ(arrival_wait(skew, 2, 1), 0);    // ranks 0 and 1
  EXPECT_EQ(arrival_wait(skew, 4, 8), 100);  // ranks 0, 8, 16, 24
  EXPECT_EQ(arrival_wait({{0, 300}, {3, 250}}, 4, 1), 0);
  EXPECT_EQ(arrival_wait({}, 4, 1), 0);
}

// A file that is a preset with parts of its text replaced.
std::string preset_with(const std::string& name, const std::vector<std::pair<std::string, std::string>>& changes) {
  std::string text = to_yaml(load_hardware("h100-sxm"));
  for (const auto& [from, to] : changes) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  }
  const std::string path = testing::TempDir() + name + ".yaml";
  std::ofstream(path) << text;
  return path;
}

fsdp::Nanos step_on(const std::string& hardware, const Settings& more = {}) {
  Settings s = {{"world", "8"}, {"hardware", hardware}};
  s.insert(s.end(), more.begin(), more.end());
  return predicted(with(s)).traced_step_ns.at(0);
}

TEST(VirtualWorld, HostTimeOfAUnitIsPaidWhereTheHostIsNotAhead) {
  // A small model keeps the device behind for no longer than its optimizer.
  const std::pair<std::string, std::string> no_lead = {"optimizer_us: 2000", "optimizer_us: 0"};
  const std::string plain = preset_with("plain_host", {no_lead}),
                    slow = preset_with("slow_host", {no_lead, {"unit_pass_us: 0", "unit_pass_us: 300"}});
  const auto more = [&](const char* wrap) {
    return step_on(slow, {{"wrap", wrap}}) - step_on(plain, {{"wrap", wrap}});
  };
  EXPECT_GT(more("root"), 0);
  EXPECT_GT(more("class:Linear"), 5 * more("root")) << "every unit has its own";
  const std::string ahead = preset_with("ahead", {{"optimizer_us: 2000", "optimizer_us: 50000"}}),
                    hidden = preset_with("hidden", {{"optimizer_us: 2000", "optimizer_us: 50000"},
                                                    {"unit_pass_us: 0", "unit_pass_us: 300"}});
  EXPECT_EQ(step_on(hidden, {{"wrap", "root"}}), step_on(ahead, {{"wrap", "root"}}))
      << "hidden while the device is behind";
}

TEST(VirtualWorld, TheSlowestOfManyRanksIsWaitedForOnceAStep) {
  const std::vector<std::pair<std::string, std::string>> ahead = {{"launch_us: 12", "launch_us: 0"},
                                                                  {"collective_us: 100", "collective_us: 0"}};
  auto even = ahead;
  even.push_back({"jitter: 0.01", "jitter: 0"});
  const auto on = [](const std::string& hardware) { return predicted(with({{"world", "8"}, {"hardware", hardware}})); };
  const RankResult varied = on(preset_with("varied", ahead)), none = on(preset_with("even", even));
  const fsdp::Nanos late = std::stoll(varied.environment.at("predicted_straggler_ns"));
  EXPECT_GT(late, 0);
  EXPECT_EQ(none.environment.count("predicted_straggler_ns"), 0u);
  EXPECT_EQ(varied.traced_step_ns.at(0) - none.traced_step_ns.at(0), late);
}

TEST(VirtualWorld, RecomputeStopsBeforeTheLastProductWhereTheStackDoes) {
  const std::string whole = preset_with("whole", {{"early_stop: true", "early_stop: false"}});
  const Settings checkpoint = {{"checkpoint", "block"}, {"batch", "64"}}, none = {{"batch", "64"}};
  EXPECT_LT(step_on("h100-sxm", checkpoint), step_on(whole, checkpoint));
  EXPECT_EQ(step_on("h100-sxm", none), step_on(whole, none)) << "nothing is computed again";
}

TEST(VirtualWorld, ACachingAllocatorIsModelledBelowTheCountedBytes) {
  const RankResult gpu = predicted(with({{"hardware", "h100-sxm"}})), cpu = predicted(with({}));
  EXPECT_GE(std::stoll(gpu.environment.at("predicted_reserved_bytes")), gpu.peak.total);
  EXPECT_EQ(std::stoll(gpu.environment.at("predicted_reserved_bytes")) % (2 << 20), 0);
  EXPECT_EQ(gpu.environment.at("predicted_allocator_retries"), "0");
  EXPECT_EQ(cpu.environment.count("predicted_reserved_bytes"), 0u);
  // Room for the bytes, but not for the segments they come in.
  const std::string tight = std::to_string(gpu.peak.total + 4096) + "B";
  const RankResult barely = predicted(with({{"hardware", "h100-sxm"}, {"memory_budget", tight}}));
  EXPECT_EQ(barely.peak.total, gpu.peak.total);
  EXPECT_NE(barely.environment.at("predicted_allocator_failures"), "0");
}

TEST(VirtualWorld, AGpuKeepsWhatACoreMakesAgain) {
  const RankResult h100 = predicted(with({{"hardware", "h100-sxm"}})),
                   a100 = predicted(with({{"hardware", "a100-80gb"}})), cpu = predicted(with({}));
  EXPECT_EQ(h100.peak.total, a100.peak.total);
  // Of each block what both norms and swiglu make, on a core a copy of each norm's weight instead. Activations peak in
  // backward of the third block, bytes in all in that of the second: there a core has just made swiglu again.
  constexpr fsdp::Bytes kFloat = 4, kSteps = 64, kDim = 64, kFfn = 176;
  constexpr fsdp::Bytes kNorm = kSteps * kDim * kFloat, kSwiglu = kSteps * kFfn * kFloat, kCopy = kDim * kFloat;
  constexpr fsdp::Bytes kBlock = 2 * kNorm + kSwiglu - 2 * kCopy;
  constexpr auto kActivations = static_cast<std::size_t>(fsdp::MemoryCategory::kActivations);
  EXPECT_EQ(h100.category_peaks[kActivations] - cpu.category_peaks[kActivations], 3 * kBlock - kSwiglu);
  EXPECT_EQ(h100.peak.total - cpu.peak.total, 2 * kBlock - kSwiglu);
  for (const fsdp::MemoryCategory c : {fsdp::MemoryCategory::kParameters, fsdp::MemoryCategory::kUnsharded})
    EXPECT_EQ(h100.category_peaks[static_cast<std::size_t>(c)], cpu.category_peaks[static_cast<std::size_t>(c)]);
}

TEST(VirtualWorld, OneRankStandsForThousands) {
  const RankResult r = predicted(with({{"world", "4096"}, {"hardware", "h100-sxm"}}));
  EXPECT_GT(r.peak.total, 0);
  EXPECT_EQ(r.environment.at("predicted_hardware"), "h100-sxm");
  EXPECT_EQ(r.environment.at("predicted_network"), "dgx-h100-ndr");
}

TEST(VirtualWorld, HybridGroupsReduceInsideAndAcross) {
  const RankResult r = predicted(with({{"world", "64"}, {"hardware", "h100-sxm"}, {"strategy", "hybrid_shard:8"}}));
  int gathers = 0, replicas = 0;
  for (const fsdp::Span& s : r.spans) {
    gathers += s.kind == fsdp::SpanKind::kAllGather;
    replicas += s.kind == fsdp::SpanKind::kAllReduce;
  }
  EXPECT_GT(gathers, 0);
  EXPECT_EQ(replicas, 4) << "one for each unit";
}

TEST(VirtualWorld, PassingTheBudgetIsOutOfMemoryWithItsCause) {
  CaseSettings c = with({{"hardware", "h100-sxm"}, {"memory_budget", "600KiB"}});
  EXPECT_THROW(predicted(c), fsdp::OutOfMemory);
}

TEST(VirtualWorld, AWireThatIsSlowerThanTheComputationIsTheStep) {
  CaseSettings c = with({{"wire", "0us,1MB/s"}, {"device", "virtual"}});
  RankJob job;
  job.settings = c;
  job.world = c.world;
  RankProgress progress;
  const VirtualRun run = run_virtual(job, progress, true);
  // Half of each buffer travels; what is on the wire is one communicator's, one after the other.
  fsdp::Nanos wire = 0;
  for (const fsdp::Span& s : run.result.spans) {
    if (fsdp::is_collective(s.kind)) wire += s.bytes / 2 * 1000;
  }
  EXPECT_GE(run.step_ns, wire);
  EXPECT_LT(run.step_ns, wire + wire / 10);
}

TEST(VirtualWorld, AWireThatIsLateHoldsItsLaneForLonger) {
  Hardware late = load_hardware("cpu-core");
  late.wire_late_us = 50;
  const std::string file = ::testing::TempDir() + "late_wire.yaml";
  std::ofstream(file) << to_yaml(late);
  const CaseSettings wire = with({{"wire", "1ms,1GB/s"}}), later = with({{"wire", "1ms,1GB/s"}, {"hardware", file}});
  const auto collectives = [](const RankResult& r) {
    std::vector<fsdp::Nanos> times;
    for (const fsdp::Span& s : r.spans)
      if (fsdp::is_collective(s.kind)) times.push_back(s.end - s.begin);
    return times;
  };
  std::vector<fsdp::Nanos> expected = collectives(predicted(wire));
  ASSERT_FALSE(expected.empty());
  for (fsdp::Nanos& ns : expected) ns += 50'000;
  EXPECT_EQ(collectives(predicted(later)), expected);
}

}  // namespace
}  // namespace harness
