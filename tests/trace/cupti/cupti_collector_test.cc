#include "harness/trace/cupti_collector.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <thread>

#include "fsdp/core/clock.h"
#include "harness/trace/cupti_session.h"
#include "tests/trace/cupti/fake_cupti.h"

namespace harness {
namespace {

using fsdp::Pass;
using fsdp::SpanKind;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr fsdp::WorkTag kGather{SpanKind::kAllGather, 3, Pass::kForward, 1 << 20};

// The fake is what load_cupti finds: named by SHARDSCOPE_CUPTI, and later in the process already.
class CuptiCollectorTest : public ::testing::Test {
 protected:
  CuptiCollectorTest() {
    setenv("SHARDSCOPE_CUPTI", FAKE_CUPTI, 1);
    void* handle = dlopen(FAKE_CUPTI, RTLD_NOW);
    fake = reinterpret_cast<const FakeCupti* (*)()>(dlsym(handle, "fake_cupti"))();
    fake->reset();
    std::string why;
    const auto found = load_cupti(why);
    if (!found) throw std::runtime_error(why);
    library = *found;
    fake->fail_at(0, 0);
  }
  std::uint64_t gpu_now() const { return static_cast<std::uint64_t>(fsdp::steady_now() + fake->clock_offset()); }
  // One tagged kernel, as a device launches it.
  void gather(CuptiCollector& c, std::uint64_t begin) {
    const fsdp::ScopedRange range(&c.tags(), kGather, 0);
    fake->launch("ncclDevKernel_AllGather_RING_LL", begin, begin + 100);
  }
  // Nothing of ours is left in CUPTI.
  void expect_clean() const {
    EXPECT_EQ(fake->subscribers(), 0);
    EXPECT_EQ(fake->enabled_kinds(), 0);
    EXPECT_EQ(fake->buffers(), 0);
  }
  CuptiCollector::Options small() const {
    CuptiCollector::Options o;
    o.buffer_bytes = 4096, o.ready_buffers = 1, o.most_buffers = 3;
    return o;
  }
  CuptiLibrary library;
  const FakeCupti* fake = nullptr;
};

TEST_F(CuptiCollectorTest, TheLibraryIsFoundAndNamed) {
  EXPECT_EQ(library.version, 130001u);
  EXPECT_THAT(library.path, HasSubstr("libfake_cupti.so"));
}

TEST_F(CuptiCollectorTest, KernelsComeBackWithUnitPassAndBytesOnOurClock) {
  CuptiCollector c(library);
  ASSERT_EQ(c.start(), "");
  const fsdp::Nanos before = fsdp::steady_now();
  gather(c, gpu_now());
  const fsdp::Nanos after = fsdp::steady_now();
  const CuptiTrace t = c.stop(1);
  ASSERT_EQ(t.spans.size(), 1u);
  EXPECT_EQ(t.spans[0].unit, 3);
  EXPECT_EQ(t.spans[0].bytes, 1 << 20);
  EXPECT_EQ(t.spans[0].rank, 1);
  EXPECT_GE(t.spans[0].begin, before - t.clock_error);
  EXPECT_LE(t.spans[0].begin, after + t.clock_error);
  EXPECT_EQ(t.spans[0].end - t.spans[0].begin, 100);
  EXPECT_THAT(t.notes, IsEmpty());
  expect_clean();
}

TEST_F(CuptiCollectorTest, ManyBuffersOfEverySupportedVersionAreRead) {
  for (const std::uint32_t version : {19u, 22u, 26u, 27u, 130001u}) {
    fake->reset();
    fake->set_version(version);
    library.version = version;
    CuptiCollector::Options o;
    o.buffer_bytes = 4096;
    CuptiCollector c(library, o);
    ASSERT_EQ(c.start(), "");
    for (int i = 0; i < 100; ++i) gather(c, gpu_now());
    const CuptiTrace t = c.stop(0);
    EXPECT_EQ(t.spans.size(), 100u) << version;
    EXPECT_EQ(t.untagged, 0u) << version;
    EXPECT_FALSE(t.losses.any()) << losses_text(t.losses);
    expect_clean();
  }
}

TEST_F(CuptiCollectorTest, AVersionOfTheFutureIsWalkedByTheLibrary) {
  library.version = 140000;
  CuptiCollector c(library);
  ASSERT_EQ(c.start(), "");
  gather(c, gpu_now());
  EXPECT_EQ(c.stop(0).spans.size(), 1u);
}

TEST_F(CuptiCollectorTest, AtTheLimitOfMemoryBuffersAreRefusedAndTheLossIsCounted) {
  CuptiCollector c(library, small());
  ASSERT_EQ(c.start(), "");
  for (int i = 0; i < 100; ++i) gather(c, gpu_now());
  const CuptiTrace t = c.stop(0);
  EXPECT_LT(t.spans.size(), 100u);
  EXPECT_GT(t.losses.rejected, 0u);
  EXPECT_GT(t.losses.dropped, 0u);
  EXPECT_THAT(t.notes, Contains(HasSubstr("incomplete")));
  expect_clean();
}

TEST_F(CuptiCollectorTest, AnOldLibraryIsNeverRefusedABuffer) {
  library.version = 26;
  fake->set_version(26);
  CuptiCollector c(library, small());
  ASSERT_EQ(c.start(), "");
  for (int i = 0; i < 100; ++i) gather(c, gpu_now());
  const CuptiTrace t = c.stop(0);
  EXPECT_EQ(t.spans.size(), 100u);
  EXPECT_EQ(t.losses.rejected, 0u);
}

TEST_F(CuptiCollectorTest, ItCollectsAgainAndSeesOnlyWhatIsNew) {
  CuptiCollector c(library);
  for (int round = 1; round <= 3; ++round) {
    ASSERT_EQ(c.start(), "");
    for (int i = 0; i < round; ++i) gather(c, gpu_now());
    EXPECT_EQ(c.stop(0).spans.size(), static_cast<std::size_t>(round));
    expect_clean();
  }
}

TEST_F(CuptiCollectorTest, AnotherSubscriberIsYieldedToWithASentence) {
  fake->hold_by_other(true);
  CuptiCollector c(library);
  EXPECT_THAT(c.start(), HasSubstr("another tool in this process holds CUPTI"));
  EXPECT_FALSE(c.collecting());
  EXPECT_EQ(fake->calls(), 1) << "nothing was tried after the refusal";
  EXPECT_TRUE(c.stop(0).spans.empty());
  fake->hold_by_other(false);
  EXPECT_EQ(c.start(), "");
  c.stop(0);
  expect_clean();
}

TEST_F(CuptiCollectorTest, ACallThatFailsIsASentenceAndLeavesNothingBehind) {
  const auto run = [&](int fail_at) {
    fake->reset();
    fake->fail_at(fail_at, cupti::kUnknownError);
    CuptiCollector c(library);
    std::string why = c.start();
    if (why.empty()) {
      gather(c, gpu_now());
      const CuptiTrace t = c.stop(0);
      for (const std::string& n : t.notes) why += n;
      if (t.spans.size() != 1) why += " span missing";
      if (t.untagged > 0) why += " untagged";
    }
    return why;
  };
  ASSERT_EQ(run(0), "");
  const int calls = fake->calls();
  ASSERT_GT(calls, 20);
  // A failure of these is made good, or costs nothing that is shown.
  std::map<std::string, int> silent;
  for (int n = 1; n <= calls; ++n) {
    const std::string why = run(n);
    const std::string failed = fake->call_name(n);
    if (why.empty()) ++silent[failed];
    const bool undoing = failed == "cuptiActivityDisable" || failed == "cuptiUnsubscribe";
    EXPECT_LE(fake->subscribers(), undoing ? 1 : 0) << failed;
    EXPECT_LE(fake->enabled_kinds(), undoing ? 1 : 0) << failed;
    EXPECT_EQ(fake->buffers(), failed == "cuptiActivityFlushAll" ? 1 : 0) << failed;
  }
  const std::map<std::string, int> expected = {{"cuptiSetThreadIdType", 1},
                                               {"cuptiActivitySetAttribute", 1},
                                               {"cuptiActivityEnable", 2},  // the two kinds that are extras
                                               {"cuptiGetTimestamp", 10},   // one of ten readings
                                               {"cuptiActivityPopExternalCorrelationId", 1}};
  EXPECT_EQ(silent, expected);
  // And afterwards it works.
  EXPECT_EQ(run(0), "");
}

TEST_F(CuptiCollectorTest, RefusalsSayWhatToDo) {
  for (const auto& [result, words] :
       std::map<int, std::string>{{cupti::kNoPrivileges, "NVreg_RestrictProfilingToAdminUsers"},
                                  {cupti::kUnknownError, "driver"},
                                  {cupti::kOtherSubscriber, "another tool"},
                                  {7, "result 7"}}) {
    fake->reset();
    fake->fail_at(1, result);
    EXPECT_THAT(CuptiCollector(library).start(), HasSubstr(words));
  }
}

TEST_F(CuptiCollectorTest, TagsReachTheNextSinkTooAndOnlyTagWhileCollecting) {
  class Count final : public fsdp::RangeSink {
   public:
    void push(const fsdp::WorkTag&, int) noexcept override { ++pushes; }
    void pop() noexcept override { ++pops; }
    int pushes = 0, pops = 0;
  } next;
  CuptiCollector c(library);
  { const fsdp::ScopedRange range(&c.tags(&next), kGather, 0); }
  EXPECT_EQ(fake->calls(), 0);
  ASSERT_EQ(c.start(), "");
  {
    const fsdp::ScopedRange range(&c.tags(&next), kGather, 0);
    EXPECT_EQ(fake->pushed(), 1);
  }
  EXPECT_EQ(fake->pushed(), 0);
  EXPECT_EQ(next.pushes, 2);
  EXPECT_EQ(next.pops, 2);
  c.stop(0);
}

TEST_F(CuptiCollectorTest, TagsOfThreadsDoNotMix) {
  CuptiCollector c(library);
  ASSERT_EQ(c.start(), "");
  fsdp::RangeSink& tags = c.tags();
  const std::uint64_t at = gpu_now();
  const fsdp::ScopedRange mine(&tags, kGather, 0);
  std::thread([&] {
    const fsdp::ScopedRange theirs(&tags, {SpanKind::kReduceScatter, 8, Pass::kBackward, 64}, 0);
    fake->launch("theirs", at, at + 10);
  }).join();
  fake->launch("mine", at + 100, at + 200);
  const CuptiTrace t = c.stop(0);
  ASSERT_EQ(t.spans.size(), 2u);
  EXPECT_EQ(t.spans[0].unit, 8);
  EXPECT_EQ(t.spans[1].unit, 3);
}

TEST_F(CuptiCollectorTest, AForkedChildLeavesCuptiAlone) {
  CuptiCollector c(library);
  ASSERT_EQ(c.start(), "");
  const int before = fake->calls();
  const pid_t child = fork();
  if (child == 0) {
    c.sample_clock();
    gather(c, 1000);
    c.stop(0);
    _exit(fake->calls() == before ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(c.collecting());
  c.stop(0);
}

std::unique_ptr<CuptiSession> session(const std::map<std::string, std::string>& variables) {
  return CuptiSession::wanted([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST_F(CuptiCollectorTest, ASessionHoldsItsRecordsAgainstTheDevicesEvents) {
  const auto s = session({{"SHARDSCOPE_CUPTI", FAKE_CUPTI}});
  ASSERT_TRUE(s);
  fsdp::RangeSink* tags = s->tags(nullptr);
  s->begin();
  {
    const fsdp::ScopedRange range(tags, kGather, 0);
    const std::uint64_t at = gpu_now();
    fake->launch("ncclDevKernel_AllGather_RING_LL", at, at + 600);
  }
  s->step();
  fsdp::Span by_events;
  by_events.kind = kGather.kind, by_events.unit = kGather.unit, by_events.pass = kGather.pass;
  by_events.begin = 1000, by_events.end = 1800;
  const CuptiReport r = s->finish(0, {by_events});
  EXPECT_EQ(r.fields.at("machine.cupti.operations"), "1");
  EXPECT_EQ(r.fields.at("machine.cupti.collectives_to_events"), "0.750");
  EXPECT_THAT(r.warnings, IsEmpty());
  expect_clean();
}

TEST_F(CuptiCollectorTest, ASessionThatMayNotCollectSaysWhyAndTheRunGoesOn) {
  fake->hold_by_other(true);
  const auto held = session({{"SHARDSCOPE_CUPTI", FAKE_CUPTI}});
  held->begin();
  held->step();
  const CuptiReport r = held->finish(0, {});
  EXPECT_TRUE(r.fields.empty());
  EXPECT_THAT(r.warnings, ElementsAre(HasSubstr("the GPU was not traced: another tool")));

  const int before = fake->calls();
  const auto nsys = session({{"SHARDSCOPE_CUPTI", FAKE_CUPTI}, {"NSYS_PROFILING_SESSION_ID", "1"}});
  EXPECT_EQ(nsys->tags(nullptr), nullptr);
  nsys->begin();
  EXPECT_THAT(nsys->finish(0, {}).warnings, ElementsAre(HasSubstr("Nsight Systems")));
  EXPECT_EQ(fake->calls(), before) << "CUPTI was not touched";
}

TEST(CuptiSession, IsOnlyThereWhenAskedFor) {
  EXPECT_FALSE(session({}));
  EXPECT_FALSE(session({{"SHARDSCOPE_CUPTI", "0"}}));
}

TEST(CuptiReport, ComparesOnlyWhatBothKnow) {
  const auto span = [](SpanKind kind, fsdp::UnitId unit, fsdp::Nanos begin, fsdp::Nanos end) {
    fsdp::Span s;
    s.kind = kind, s.unit = unit, s.begin = begin, s.end = end;
    return s;
  };
  CuptiTrace t;
  t.spans = {span(SpanKind::kAllGather, 1, 10, 40), span(SpanKind::kAllGather, 1, 50, 110),  // two kernels of one
             span(SpanKind::kReduceScatter, 2, 0, 77), span(SpanKind::kCompute, 1, 0, 1000)};
  t.overheads = {{0, 30}, {50, 60}};
  const CuptiReport r =
      report_cupti(t, {span(SpanKind::kAllGather, 1, 0, 200), span(SpanKind::kAllGather, 9, 0, 5000)});
  EXPECT_EQ(r.fields.at("machine.cupti.collectives_to_events"), "0.500");
  EXPECT_EQ(r.fields.at("machine.cupti.overhead_ns"), "40");
  EXPECT_FALSE(report_cupti(t, {}).fields.contains("machine.cupti.collectives_to_events"));
}

TEST(LoadCupti, ALibraryThatLacksACallIsRefusedByName) {
  // In a child: here the complete fake is in the process already.
  const pid_t child = fork();
  if (child == 0) {
    setenv("SHARDSCOPE_CUPTI", FAKE_CUPTI_INCOMPLETE, 1);
    std::string why;
    const bool found = load_cupti(why).has_value();
    _exit(!found && why.find("lacks cuptiGetTimestamp") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(LoadCupti, APathThatIsNotThereIsASentence) {
  setenv("SHARDSCOPE_CUPTI", "/nonexistent/libcupti.so", 1);
  std::string why;
  EXPECT_FALSE(load_cupti(why).has_value());
  EXPECT_THAT(why, HasSubstr("SHARDSCOPE_CUPTI=/nonexistent/libcupti.so cannot be loaded"));
}

TEST(OtherProfiler, IsSeenInTheEnvironment) {
  const auto seen = [](const std::map<std::string, std::string>& variables) {
    return other_profiler([&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(seen({}), "");
  EXPECT_EQ(seen({{"NVTX_INJECTION64_PATH", "/x/libcupti.so.13"}, {"LD_PRELOAD", "libjemalloc.so"}}), "");
  EXPECT_THAT(seen({{"NSYS_PROFILING_SESSION_ID", "12"}}), HasSubstr("Nsight Systems holds CUPTI"));
  EXPECT_THAT(seen({{"NVTX_INJECTION64_PATH", "/opt/nvidia/nsys/lib.so"}}), HasSubstr("Nsight Systems"));
  EXPECT_THAT(seen({{"NV_NSIGHT_INJECTION_TRANSPORT_TYPE", "1"}}), HasSubstr("Nsight Compute"));
  EXPECT_THAT(seen({{"CUDA_INJECTION64_PATH", "/opt/tool.so"}}), HasSubstr("/opt/tool.so"));
  EXPECT_THAT(seen({{"LD_PRELOAD", "/opt/nsys/x.so"}}), HasSubstr("preloaded"));
}

}  // namespace
}  // namespace harness
