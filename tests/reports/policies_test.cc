#include "reports/policies.h"

#include <gtest/gtest.h>

#include "tests/reports/handmade.h"

namespace {

harness::CaseRecord of(const handmade::Settings& settings) {
  harness::CaseRecord c;
  c.settings = settings;
  return c;
}

TEST(PolicyTable, CasesThatDifferInNothingThePolicyHoldsShareOne) {
  reports::PolicyTable table;
  EXPECT_EQ(table.packed(), "");
  EXPECT_EQ(table.add(of({{"model", "llama"}, {"set", "layers=2,dim=32,heads=2,ffn=64,vocab=64"}, {"wrap", "block"}})),
            0u);
  EXPECT_EQ(table.add(of({{"model", "llama"}, {"set", "layers=2,dim=32,heads=2,ffn=64,vocab=64"}, {"wrap", "root"}})),
            1u);
  EXPECT_EQ(table.add(of({{"model", "llama"},
                          {"set", "layers=2,dim=32,heads=2,ffn=64,vocab=64"},
                          {"wrap", "block"},
                          {"device", "cpu"}})),
            0u);
  EXPECT_FALSE(table.packed().empty());
}

TEST(PolicyTable, ARecordThatMakesNoPlanHasNone) {
  reports::PolicyTable table;
  EXPECT_EQ(table.add(of({})), std::nullopt);
  EXPECT_EQ(table.add(of({{"model", "no such model"}})), std::nullopt);
  EXPECT_EQ(table.add(of({{"wrap", "</script>"}})), std::nullopt);
}

}  // namespace
