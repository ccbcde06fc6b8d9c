// The torch models are what describe_model() says they are.
#include <gmock/gmock.h>

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
  }
}

TEST(TorchModel, TreeEqualsTheTorchFreeDescription) {
  for (const std::string family : {"llama", "gpt-neox"}) {
    for (const bool tied : {false, true}) {
      ModelSettings m;
      m.family = family;
      m.tied = tied;
      m.layers = 3;
      if (family == "llama") m.kv_heads = 2;
      const auto model = build_model(m, true);
      SCOPED_TRACE(family + (tied ? " tied" : ""));
      expect_same_tree(fsdp::tree_of(*model), describe_model(m));
      const auto parameters = fsdp::parameters_of(*model);
      const auto tree = describe_model(m);
      ASSERT_EQ(parameters.size(), tree.parameters.size());
      for (std::size_t i = 0; i < parameters.size(); ++i) EXPECT_EQ(parameters[i]->name, tree.parameters[i].name);
    }
  }
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
