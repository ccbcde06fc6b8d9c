// The torch models are what describe_model() says they are.
#include <gmock/gmock.h>

#include "fsdp/module/torch.h"
#include "harness/workload/batch.h"
#include "harness/workload/describe.h"
#include "harness/workload/models.h"
#include "harness/workload/synthetic_data.h"

namespace harness {
namespace {

void expect_same_tree(const fsdp::ModuleTree& got, const fsdp::ModuleTree& want) {
  ASSERT_EQ(got.modules.size(), want.modules.size());
  for (std::size_t i = 0; i < want.modules.size(); ++i) {
    const auto &a = got.modules[i], &b = want.modules[i];
    EXPECT_EQ(a.path, b.path);
    EXPECT_EQ(a.type, b.type) << b.path;
    EXPECT_EQ(a.parent, b.parent) << b.path;
    EXPECT_EQ(a.children, b.children) << b.path;
    EXPECT_EQ(a.parameters, b.parameters) << b.path;
    EXPECT_EQ(a.is_block, b.is_block) << b.path;
    EXPECT_EQ(a.is_sublayer_start, b.is_sublayer_start) << b.path;
  }
  ASSERT_EQ(got.parameters.size(), want.parameters.size());
  for (std::size_t i = 0; i < want.parameters.size(); ++i) {
    const auto &a = got.parameters[i], &b = want.parameters[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.aliases, b.aliases) << b.name;
    EXPECT_EQ(a.shape, b.shape) << b.name;
    EXPECT_EQ(a.init, b.init) << b.name;
    EXPECT_EQ(a.index, b.index) << b.name;
    EXPECT_EQ(a.trainable, b.trainable) << b.name;
  }
}

TEST(TorchModel, TreeEqualsTheTorchFreeDescription) {
  for (const Family& family : families()) {
    for (const bool other : {false, true}) {
      ModelSettings m;
      m.family = family.name;
      m.tied = other;
      m.gated = other;
      m.layers = 3;
      m.positions = 64, m.classes = 10;
      m.decoder_layers = 2;
      if (m.family == "llama" || m.family == "qwen3") m.kv_heads = 2, m.head_dim = 24;
      if (other) m.frozen = "*.1.*weight";
      const auto model = build_model(m, true);
      SCOPED_TRACE(m.family + (other ? " tied, gated, frozen" : ""));
      expect_same_tree(fsdp::tree_of(*model), describe_model(m));
      const auto parameters = fsdp::parameters_of(*model);
      const auto tree = describe_model(m);
      ASSERT_EQ(parameters.size(), tree.parameters.size());
      for (std::size_t i = 0; i < parameters.size(); ++i) EXPECT_EQ(parameters[i]->name, tree.parameters[i].name);
    }
  }
}

TEST(MakeBatch, GivesEachFamilyItsInputsAndTargets) {
  ModelSettings m = resolve_model("embedding-classifier", "vocab=1000,classes=7");
  m.seq = 5;
  const auto tokens = synthetic_tokens(3, 4, 2, 5, 1000);
  const Batch c = make_batch(m, 3, 4, 2, false);
  EXPECT_EQ(c.inputs.sizes(), at::IntArrayRef({2, 5}));
  ASSERT_EQ(c.targets.sizes(), at::IntArrayRef({2}));
  EXPECT_EQ(c.targets[0].item<std::int64_t>(), tokens[5] % 7);
  EXPECT_EQ(c.targets[1].item<std::int64_t>(), tokens[11] % 7);

  m = resolve_model("mlp", "dim=6,classes=9");
  m.seq = 5;
  const Batch a = make_batch(m, 3, 0, 2, false), b = make_batch(m, 3, 1, 1, false);
  EXPECT_EQ(a.inputs.sizes(), at::IntArrayRef({2, 5, 6}));
  EXPECT_TRUE(at::equal(a.inputs[1], b.inputs[0])) << "a sample is the same in every batch";
  EXPECT_LE(a.inputs.abs().max().item<float>(), 1.0f);
  EXPECT_GT(a.inputs.abs().max().item<float>(), 0.5f);
  EXPECT_LT(a.targets.max().item<std::int64_t>(), 9);
}

TEST(SyntheticTokens, FollowTheCounterRule) {
  const auto t = synthetic_tokens(1234, 0, 2, 16, 128);
  ASSERT_EQ(t.size(), 34u);
  EXPECT_THAT(std::vector<std::int64_t>(t.begin(), t.begin() + 5), testing::ElementsAre(105, 35, 40, 27, 70));
  const auto second = synthetic_tokens(1234, 1, 1, 16, 128);
  EXPECT_EQ(second, std::vector<std::int64_t>(t.begin() + 17, t.end()));
}

}  // namespace
}  // namespace harness
