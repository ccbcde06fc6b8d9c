#include "harness/analysis/annotations.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace harness {
namespace {

using fsdp::Pass;
using fsdp::SpanKind;

TEST(Annotations, StepsInTheirSpellings) {
  for (const char* t :
       {"ProfilerStep#12", "step", "step 3", "step_3", "Step#4", "iteration: 5", "train_step 1", "iter 2"}) {
    EXPECT_EQ(meaning_of(t).kind, AnnotationKind::kStep) << t;
  }
  for (const char* t : {"steps", "stepper 1", "step x", "optimizer step", "## backward ##"}) {
    EXPECT_NE(meaning_of(t).kind, AnnotationKind::kStep) << t;
  }
}

TEST(Annotations, Fsdp2NamesUnitPhaseAndPass) {
  const AnnotationMeaning gather = meaning_of("FSDP::all_gather (model.layers.3)");
  EXPECT_EQ(gather.kind, AnnotationKind::kFsdp2);
  EXPECT_EQ(gather.phase, Phase::kAllGather);
  EXPECT_EQ(gather.unit, "model.layers.3");
  EXPECT_EQ(meaning_of("FSDP::all_gather").unit, "[root]");
  EXPECT_EQ(meaning_of("FSDP::backward_prefetch for layers.0").unit, "layers.0");
  EXPECT_EQ(meaning_of("FSDP::pre_backward (a)").pass, Pass::kBackward);
  EXPECT_EQ(meaning_of("FSDP::post_backward_reduce (a)").phase, Phase::kReduce);
  EXPECT_FALSE(meaning_of("FSDP::root_pre_forward").has_unit);
}

TEST(Annotations, OwnRangesNameUnitPassAndPhase) {
  const AnnotationMeaning m = meaning_of("unit12.bwd.reduce_scatter");
  EXPECT_EQ(m.kind, AnnotationKind::kOwn);
  EXPECT_EQ(m.unit, "unit12");
  EXPECT_EQ(m.pass, Pass::kBackward);
  EXPECT_EQ(m.phase, Phase::kReduce);
  EXPECT_EQ(meaning_of("unit1.opt.optimizer").kind, AnnotationKind::kOptimizer);
  EXPECT_EQ(meaning_of("unitary").kind, AnnotationKind::kOther);
}

TEST(Annotations, CollectivesOfLibraries) {
  EXPECT_EQ(meaning_of("nccl:_all_gather_base").collective, SpanKind::kAllGather);
  EXPECT_EQ(meaning_of("c10d::_reduce_scatter_base_").collective, SpanKind::kReduceScatter);
  EXPECT_EQ(meaning_of("gloo:all_reduce").collective, SpanKind::kAllReduce);
}

AnnotationIndex indexed(const std::vector<std::tuple<const char*, fsdp::Nanos, fsdp::Nanos>>& ranges,
                        std::vector<std::string>& units) {
  AnnotationIndex index;
  std::vector<std::string> names;
  for (const auto& [text, begin, end] : ranges) {
    const AnnotationMeaning m = meaning_of(text);
    Annotation a;
    a.begin = begin, a.end = end, a.thread = 4, a.kind = m.kind, a.phase = m.phase, a.pass = m.pass,
    a.collective = m.collective;
    if (m.has_unit) {
      a.unit = static_cast<fsdp::UnitId>(units.size());
      units.emplace_back(m.unit);
    }
    if (m.kind == AnnotationKind::kModule) {
      a.name = static_cast<std::uint32_t>(names.size());
      names.emplace_back(m.module);
    }
    index.add(a);
  }
  index.index(1000, names, units);
  return index;
}

TEST(Annotations, TheInnermostUnitAndTheNearestPassCount) {
  std::vector<std::string> units;
  const AnnotationIndex index = indexed({{"FSDP::pre_backward (b)", 0, 100},
                                         {"FSDP::backward_prefetch for a", 10, 60},
                                         {"FSDP::all_gather (a)", 20, 50},
                                         {"Optimizer.step#SGD", 200, 300}},
                                        units);
  const Attribution at = attribution_at(index, 4, 30);
  EXPECT_EQ(units[static_cast<std::size_t>(at.unit)], "a");
  EXPECT_EQ(at.pass, Pass::kBackward);
  EXPECT_EQ(at.collective, SpanKind::kAllGather);
  EXPECT_TRUE(at.fsdp_copy);
  EXPECT_TRUE(attribution_at(index, 4, 299).optimizer);
  EXPECT_FALSE(attribution_at(index, 4, 300).optimizer) << "half-open";
  EXPECT_EQ(attribution_at(index, 4, 150).unit, fsdp::kNoUnit);
  EXPECT_EQ(attribution_at(index, 5, 30).unit, fsdp::kNoUnit) << "another thread";
}

TEST(Annotations, Fsdp1UnitsComeFromTheOrderOfTheForwards) {
  // The root forward holds two units; backward: root's hook, then unit 2 with a prefetch for unit 1, and so on.
  const std::string f = "FullyShardedDataParallel.";
  const std::string forward = f + "forward", pre = f + "_pre_backward_hook", post = f + "_post_backward_hook",
                    prefetch = f + "_pre_backward_prefetch";
  std::vector<std::string> units;
  const AnnotationIndex index = indexed({{forward.c_str(), 0, 100},
                                         {forward.c_str(), 10, 40},
                                         {forward.c_str(), 50, 90},
                                         {pre.c_str(), 110, 120},
                                         {pre.c_str(), 130, 150},
                                         {prefetch.c_str(), 140, 148},
                                         {post.c_str(), 160, 170},
                                         {pre.c_str(), 180, 190},
                                         {post.c_str(), 200, 210},
                                         {post.c_str(), 220, 230}},
                                        units);
  auto unit = [&](fsdp::Nanos t) { return units.at(static_cast<std::size_t>(attribution_at(index, 4, t).unit)); };
  EXPECT_EQ(unit(5), "unit 0 (root)");
  EXPECT_EQ(unit(20), "unit 1");
  EXPECT_EQ(unit(60), "unit 2");
  EXPECT_EQ(unit(115), "unit 0 (root)");
  EXPECT_EQ(unit(132), "unit 2");
  EXPECT_EQ(unit(145), "unit 1") << "a prefetch is for the unit whose turn is next";
  EXPECT_EQ(unit(165), "unit 2");
  EXPECT_EQ(unit(185), "unit 1");
  EXPECT_EQ(unit(205), "unit 1");
  EXPECT_EQ(unit(225), "unit 0 (root)");
}

// Calls of modules, as a profiler with Python stacks has them. The first unit is checkpointed inside, and used twice;
// the third forward is of a module that the trace does not name.
TEST(Annotations, Fsdp1UnitsAreNamedByTheModulesCalledInsideTheirForwards) {
  const std::string f = "FullyShardedDataParallel.";
  const std::string forward = f + "forward", pre = f + "_pre_backward_hook", post = f + "_post_backward_hook",
                    before = f + "_pre_forward", next = f + "_pre_forward_prefetch",
                    prefetch = f + "_pre_backward_prefetch";
  std::vector<std::string> units;
  const AnnotationIndex index = indexed({{"nn.Module: FullyShardedDataParallel_0", 0, 101},
                                         {forward.c_str(), 1, 100},
                                         {"nn.Module: Model_0", 3, 99},
                                         {"nn.Module: Embedding_0", 4, 5},
                                         {forward.c_str(), 10, 30},
                                         {before.c_str(), 11, 14},
                                         {"nn.Module: Hook_0", 12, 13},
                                         {"nn.Module: CheckpointWrapper_0", 15, 29},
                                         {"nn.Module: Block_7", 16, 28},
                                         {"nn.Module: Linear_0", 17, 20},
                                         {forward.c_str(), 40, 60},
                                         {next.c_str(), 41, 43},
                                         {forward.c_str(), 65, 80},
                                         {"nn.Module: Block_7", 66, 79},
                                         {pre.c_str(), 110, 120},
                                         {prefetch.c_str(), 112, 118},
                                         {pre.c_str(), 130, 150},
                                         {post.c_str(), 160, 170},
                                         {post.c_str(), 180, 190}},
                                        units);
  auto unit = [&](fsdp::Nanos t) { return units.at(static_cast<std::size_t>(attribution_at(index, 4, t).unit)); };
  EXPECT_EQ(unit(2), "Model_0 (root)");
  EXPECT_EQ(unit(12), "Block_7") << "not of what a hook calls";
  EXPECT_EQ(unit(18), "Block_7");
  EXPECT_EQ(unit(50), "unit 2");
  EXPECT_EQ(unit(42), "Block_7") << "a prefetch is for the forward that begins next";
  EXPECT_EQ(unit(70), "Block_7");
  EXPECT_EQ(unit(111), "Model_0 (root)");
  EXPECT_EQ(unit(115), "Block_7");
  EXPECT_EQ(unit(140), "Block_7");
  EXPECT_EQ(unit(165), "Block_7");
  EXPECT_EQ(unit(185), "unit 2");
  EXPECT_EQ(units.size(), 3u);
}

// FSDP2 brackets hooks; compute lies between them.
TEST(ComputeUnitsTest, ComputeBelongsToTheInnermostUnitBetweenItsHooks) {
  std::vector<std::string> names;
  std::vector<Annotation> all;
  auto add = [&](const std::string& text, fsdp::Nanos begin, fsdp::Nanos end) {
    const AnnotationMeaning m = meaning_of(text);
    Annotation a;
    a.begin = begin, a.end = end, a.kind = m.kind, a.phase = m.phase, a.pass = m.pass;
    if (m.has_unit) {
      auto it = std::find(names.begin(), names.end(), m.unit);
      if (it == names.end()) it = names.emplace(names.end(), m.unit);
      a.unit = static_cast<fsdp::UnitId>(it - names.begin());
    }
    all.push_back(a);
  };
  for (const fsdp::Nanos z : {0, 1000}) {
    add("ProfilerStep#1", z, z + 900);
    add("FSDP::pre_forward", z + 10, z + 20);
    add("FSDP::pre_forward (a)", z + 30, z + 40);
    add("FSDP::post_forward (a)", z + 60, z + 70);
    add("FSDP::post_forward", z + 80, z + 90);
    add("FSDP::pre_backward", z + 200, z + 210);
    add("FSDP::pre_backward (a)", z + 220, z + 230);
    add("FSDP::post_backward_reshard (a)", z + 260, z + 270);
    add("FSDP::post_backward_reduce (a)", z + 270, z + 280);
  }
  const ComputeUnits units(all);
  auto at = [&](fsdp::Nanos t) {
    const ComputeUnits::Owner o = units.at(0, t);
    return o.unit == fsdp::kNoUnit ? std::string("nobody")
                                   : names[static_cast<std::size_t>(o.unit)] + " " + std::string(fsdp::name_of(o.pass));
  };
  for (const fsdp::Nanos z : {0, 1000}) {
    EXPECT_EQ(at(z + 5), "nobody");
    EXPECT_EQ(at(z + 25), "[root] forward");
    EXPECT_EQ(at(z + 50), "a forward");
    EXPECT_EQ(at(z + 75), "[root] forward");
    EXPECT_EQ(at(z + 150), "nobody") << "the loss";
    EXPECT_EQ(at(z + 240), "a backward");
    EXPECT_EQ(at(z + 300), "[root] backward") << "its post-hook does not come: until the next step begins";
  }
  EXPECT_EQ(units.at(1, 50).unit, fsdp::kNoUnit) << "another thread";
}

TEST(KernelNames, CommunicationByName) {
  for (const char* n :
       {"ncclKernel_AllReduce", "ncclDevKernel_AllGather_RING_LL", "ncclSymkDevKernel_AllGather_LL", "hcclKernel",
        "void ncclDevKernel_Generic<1>()", "nccldevkernel_allgather", "emu_collective_all_gather"}) {
    EXPECT_TRUE(is_communication_name(n)) << n;
  }
  for (const char* n : {"ampere_sgemm", "hipMemcpy", "Memcpy DtoD", "reduce_kernel<512>"})
    EXPECT_FALSE(is_communication_name(n)) << n;
  EXPECT_EQ(collective_kind("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"), SpanKind::kReduceScatter);
}

}  // namespace
}  // namespace harness
