// A model that is called in a way it cannot be names the parameter, the unit, the module and the cause.
#include <gmock/gmock.h>

#include "fsdp/core/errors.h"
#include "fsdp/module/fully_shard.h"
#include "fsdp/module/ops.h"
#include "fsdp/module/torch.h"
#include "fsdp/plan/wrap_policy.h"
#include "harness/workload/layers.h"
#include "harness/workload/models.h"
#include "tests/module/ranks.h"

namespace harness {
namespace {

using fsdp::Tensors;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// Reads its neighbour's weight itself, or asks for a tensor's values.
class Crooked final : public fsdp::Module {
 public:
  enum class Does { kReadsAnothers, kAsksForValues, kMixesShapes, kSpeaksOfMetadata };
  explicit Crooked(Does does)
      : Module("Crooked"),
        does_(does),
        inner_(add_child<Linear>("inner", 8, 8, false)),
        last_(add_child<Asks>("asks", does)) {}

 protected:
  Tensors forward(Tensors inputs) override {
    if (does_ == Does::kReadsAnothers) {
      inputs[0] = fsdp::ops::linear(inputs[0], inner_.parameters()[0].second->read(), {});
      return inputs;
    }
    return last_(inner_(std::move(inputs)));
  }

 private:
  class Asks final : public fsdp::Module {
   public:
    explicit Asks(Does does) : Module("Asks"), does_(does) {}

   protected:
    Tensors forward(Tensors inputs) override {
      if (does_ == Does::kMixesShapes) inputs[0] = at::add(inputs[0], at::ones({3, 5, 7}, inputs[0].options()));
      TORCH_CHECK(does_ != Does::kSpeaksOfMetadata, "the metadata of a tensor cannot change");
      if (at::sum(inputs[0]).item<float>() > 0) inputs[0] = at::neg(inputs[0]);
      return inputs;
    }

   private:
    Does does_;
  };
  Does does_;
  fsdp::Module& inner_;
  fsdp::Module& last_;
};

template <class Call>
std::string said(fsdp::Module& model, const std::string& wrap, bool meta, Call&& call) {
  const auto plan = fsdp::make_unit_plan(fsdp::tree_of(model), fsdp::parse_wrap(wrap, {}), {});
  std::string what;
  fsdp::run_ranks(1, fsdp::groups_of(plan, 1), [&](fsdp::RankWorld& w) {
    at::set_num_threads(1);
    const fsdp::ShardedModel sharded(model, plan, {.meta = meta, .seed = 1, .scheduler = {}}, w.device, w.collectives,
                                     nullptr);
    const_cast<fsdp::ShardedModel&>(sharded).scheduler().begin_step();
    try {
      call();
    } catch (const fsdp::Error& e) {
      what = e.what();
    }
  });
  return what;
}

std::string crooked(Crooked::Does does, bool meta) {
  Crooked model(does);
  fsdp::name_modules(model);
  return said(model, "class:Linear", meta, [&] {
    model(Tensors{at::ones({1, 4, 8}, at::device(meta ? at::kMeta : at::kCPU).dtype(at::kFloat))});
  });
}

TEST(ModuleMessages, AWeightReadWithoutItsUnitsForwardNamesParameterUnitAndCause) {
  EXPECT_THAT(
      crooked(Crooked::Does::kReadsAnothers, false),
      AllOf(StartsWith("[inner.weight] "), HasSubstr("its unit inner is sharded"), HasSubstr("call the unit's")));
  Crooked bare(Crooked::Does::kReadsAnothers);
  fsdp::name_modules(bare);
  try {
    bare(Tensors{at::ones({1, 4, 8})});
    FAIL();
  } catch (const fsdp::Error& e) {
    EXPECT_THAT(e.what(), AllOf(StartsWith("[inner.weight] "), HasSubstr("has no value")));
  }
}

TEST(ModuleMessages, WhatDependsOnValuesNamesTheModuleWhereThereAreNone) {
  EXPECT_THAT(crooked(Crooked::Does::kAsksForValues, true),
              AllOf(StartsWith("[asks] Asks: "), HasSubstr("has none"), HasSubstr("--device cpu")));
  EXPECT_EQ(crooked(Crooked::Does::kAsksForValues, false), "");
}

TEST(ModuleMessages, MetadataIsNoWantOfValues) {
  EXPECT_THAT(crooked(Crooked::Does::kSpeaksOfMetadata, false),
              AllOf(StartsWith("[asks] Asks: the metadata"), testing::Not(HasSubstr("has none"))));
}

TEST(ModuleMessages, AnyErrorOfPyTorchNamesTheModule) {
  EXPECT_THAT(crooked(Crooked::Does::kMixesShapes, false), AllOf(StartsWith("[asks] Asks: "), HasSubstr("size")));
}

TEST(ModuleMessages, AnEncoderCalledAloneSaysWhichTableIsMissing) {
  const ModelSettings m = resolve_model("t5", "layers=2,dim=16,heads=2,ffn=32,vocab=64");
  const auto model = build_model(m, false);
  EXPECT_THAT(said(*model, "block", false,
                   [&] {
                     (*model->children()[1].second)(Tensors{at::zeros({1, 4}, at::kLong)});
                   }),
              AllOf(StartsWith("[shared.weight] "), HasSubstr("its unit ")));
}

}  // namespace
}  // namespace harness
