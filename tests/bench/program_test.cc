#include "bench/program.h"

#include <gtest/gtest.h>

#include <array>

namespace bench {
namespace {

int number(const char* text, int least = 1) {
  std::string program = "program", given = text;
  std::array<char*, 2> argv = {program.data(), given.data()};
  return number_at(2, argv.data(), 1, "STEPS", 10, least);
}

TEST(BenchProgram, ANumberIsReadOrTheUsualOneTaken) {
  EXPECT_EQ(number("7"), 7);
  EXPECT_EQ(number("0", 0), 0);
  EXPECT_EQ(number_at(1, nullptr, 1, "STEPS", 10), 10);
}

TEST(BenchProgram, WhatIsNoNumberOrTooSmallIsRefused) {
  for (const char* text : {"0", "-1", "", "x", "7x", " 7", "1.5", "99999999999"})
    EXPECT_THROW(number(text), fsdp::ConfigError) << text;
}

TEST(BenchProgram, BadNumbersEndItWith2) {
  EXPECT_EQ(run_program([] {}), 0);
  EXPECT_EQ(run_program([] { number("0"); }), 2);
}

}  // namespace
}  // namespace bench
