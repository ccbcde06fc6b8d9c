#include "fsdp/plan/yaml_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/core/errors.h"

namespace fsdp {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::string list_of(int values) {
  std::string text = "- a\n";
  for (int i = 3; i < values; ++i) text += "- b\n";  // the list is a value too
  return text + "- c\n";
}

TEST(YamlText, AsManyValuesAsAreAllowedAreRead) {
  EXPECT_EQ(load_yaml(list_of(kMostYamlValues), "f").size(), static_cast<std::size_t>(kMostYamlValues - 1));
}

TEST(YamlText, OneMoreIsRefusedWithItsLine) {
  EXPECT_THAT([] { load_yaml(list_of(kMostYamlValues + 1), "plan.yaml"); },
              ThrowsMessage<ConfigError>(HasSubstr("[plan.yaml:100000] more than 100000 values")));
}

TEST(YamlText, BracketsAreCountedBeforeTheyAreParsed) {
  EXPECT_THAT([] { load_yaml("a:\n" + std::string(kMostYamlValues + 1, '['), "plan.yaml"); },
              ThrowsMessage<ConfigError>(HasSubstr("[plan.yaml:2] more than 100000 values")));
}

TEST(YamlText, WhatIsNotYamlIsLeftToTheCaller) { EXPECT_THROW(load_yaml("a: [", "f"), YAML::Exception); }

TEST(YamlText, AnEmptyTextIsNull) { EXPECT_TRUE(load_yaml("", "f").IsNull()); }

}  // namespace
}  // namespace fsdp
