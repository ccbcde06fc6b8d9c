#include "fsdp/plan/prefetch_order.h"

#include <gmock/gmock.h>

#include "fsdp/core/errors.h"
#include "fsdp/plan/wrap_policy.h"
#include "harness/workload/model_settings.h"

namespace fsdp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// root, model.layers.0, model.layers.1
UnitPlan two_blocks() {
  harness::ModelSettings m;
  m.layers = 2;
  return make_unit_plan(harness::describe_model(m), parse_wrap("block"), {});
}
PrefetchOrder read(const std::string& text) { return parse_prefetch_order(text, "order.txt", two_blocks()); }
std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(PrefetchOrder, LinesAreTheForwardOrderAndBackwardIsItsReverseBehindTheRoot) {
  const PrefetchOrder o = read("# as it runs\nroot\nmodel.layers.0   # first\n\n  model.layers.1\r\n");
  EXPECT_THAT(o.forward, ElementsAre(0, 1, 2));
  EXPECT_THAT(o.backward, ElementsAre(0, 2, 1));
}

TEST(PrefetchOrder, AMarkdownListReadsTheSame) {
  EXPECT_THAT(read("- model.layers.1\n- model.layers.0\n").forward, ElementsAre(2, 1));
}

TEST(PrefetchOrder, AMapGivesEitherPassOrBoth) {
  const PrefetchOrder both = read("forward: [model.layers.1, model.layers.0]\nbackward: [model.layers.1]\n");
  EXPECT_THAT(both.forward, ElementsAre(2, 1));
  EXPECT_THAT(both.backward, ElementsAre(2));
  const PrefetchOrder one = read("backward: [model.layers.1, model.layers.0]\n");
  EXPECT_THAT(one.forward, IsEmpty());
  EXPECT_THAT(one.backward, ElementsAre(2, 1));
}

TEST(PrefetchOrder, RefusalsNameFileLineAndWhatWouldBeRight) {
  EXPECT_EQ(
      refusal("root\nmodel.layer.1\n"),
      "[order.txt:2] no unit is named 'model.layer.1' (nearest: model.layers.1, model.layers.0, root); `shardscope "
      "plan` lists them");
  EXPECT_EQ(refusal("root\n\nroot\n"), "[order.txt:3] 'root' stands twice; name each unit once a pass");
  EXPECT_EQ(refusal("# nothing\n"),
            "[order.txt:1] names no unit; give one unit a line, in the order in which forward runs them");
  EXPECT_EQ(refusal("ahead: [root]\n"), "[order.txt:1] unknown key 'ahead'; allowed: forward, backward");
  EXPECT_EQ(refusal("forward: root\n"), "[order.txt:1] a pass is a list of unit names; for example [root, lm_head]");
}

}  // namespace
}  // namespace fsdp
