// The virtual world against the host's: the same bytes, the same collectives in the same order, and times that follow
// from the costs.
#include "harness/trial/virtual_world.h"

#include <gmock/gmock.h>

#include <thread>

#include "fsdp/comm/local_transport.h"
#include "fsdp/core/errors.h"
#include "harness/trial/rank_world.h"

namespace harness {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

CaseSettings with(const Settings& settings) {
  CaseSettings c;
  apply_setting(c, "set", "layers=3,dim=64,heads=4,ffn=176,vocab=131");
  for (const auto& [name, text] : settings) apply_setting(c, name, text);
  return c;
}

RankResult on_host(const CaseSettings& c) {
  const int memory = fsdp::create_shared_memory(c.world, fsdp::Bytes{1} << 28);
  std::vector<std::thread> ranks;
  RankResult first;
  for (int rank = 0; rank < c.world; ++rank) {
    ranks.emplace_back([&, rank] {
      RankJob job;
      job.settings = c;
      job.rank = rank, job.world = c.world, job.shared_memory_fd = memory;
      RankProgress progress;
      RankWorld world(job, progress);
      world.step();
      world.barrier();
      world.begin_trace();
      world.step();
      if (rank == 0) first = world.result();
    });
  }
  for (std::thread& t : ranks) t.join();
  return first;
}

RankResult predicted(CaseSettings c) {
  apply_setting(c, "device", "virtual");
  RankJob job;
  job.settings = c;
  job.world = c.world;
  RankProgress progress;
  return run_virtual(job, progress, true).result;
}

// Collectives of a step in issue order.
std::vector<std::string> schedule(const std::vector<fsdp::Span>& spans) {
  std::vector<std::string> out;
  for (const fsdp::Span& s : spans) {
    if (!fsdp::is_collective(s.kind)) continue;
    out.push_back(std::string(name_of(s.kind)) + " " + std::to_string(s.unit) + " " + std::string(name_of(s.pass)) +
                  " " + std::to_string(s.bytes));
  }
  return out;
}

const std::vector<Settings>& matrix() {
  static const std::vector<Settings> cases = [] {
    std::vector<Settings> out;
    for (const char* model : {"llama", "gpt-neox"})
      for (const char* wrap : {"root", "block", "blocks:2", "sublayer"})
        for (const char* strategy : {"full_shard", "shard_grad_op", "no_shard"})
          out.push_back({{"model", model}, {"wrap", wrap}, {"strategy", strategy}});
    for (const Settings& more : std::vector<Settings>{{{"checkpoint", "block"}},
                                                      {{"accumulate", "2"}},
                                                      {{"param_dtype", "bf16"}},
                                                      {{"param_dtype", "bf16"}, {"reduce_dtype", "bf16"}},
                                                      {{"layout", "per_parameter"}},
                                                      {{"backward_prefetch", "none"}},
                                                      {{"optimizer", "sgd"}},
                                                      {{"batch", "3"}},
                                                      {{"clip", "1"}}}) {
      out.push_back(more);
    }
    return out;
  }();
  return cases;
}

TEST(VirtualWorld, PeakMemoryIsTheHostsToTheByteAndTheCollectivesAreTheSame) {
  for (const Settings& s : matrix()) {
    SCOPED_TRACE(testing::PrintToString(s));
    const CaseSettings c = with(s);
    const RankResult host = on_host(c), virtual_one = predicted(c);
    EXPECT_EQ(virtual_one.peak.total, host.peak.total);
    EXPECT_EQ(virtual_one.category_peaks, host.category_peaks);
    EXPECT_EQ(virtual_one.peak_cause, host.peak_cause);
    EXPECT_EQ(schedule(virtual_one.spans), schedule(host.spans));
    EXPECT_EQ(virtual_one.communicated_bytes_per_step, host.communicated_bytes_per_step);
  }
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

}  // namespace
}  // namespace harness
