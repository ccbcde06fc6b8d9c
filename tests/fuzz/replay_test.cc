// The kept corpus, tests/data/fuzz/TARGET/*: seeds, and what was once found.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/targets.h"
#include "tests/testing/test_data.h"

namespace harness::fuzz {
namespace {

namespace fs = std::filesystem;

class FuzzCorpus : public testing::TestWithParam<std::pair<std::string, Target>> {};

std::vector<std::string> inputs(const std::string& target) {
  std::vector<std::string> out;
  for (const auto& e : fs::directory_iterator(fs::path(testing_support::test_data()) / "fuzz" / target)) {
    std::ifstream in(e.path(), std::ios::binary);
    out.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return out;
}

// Each input as it is, cut at some places, and with some bytes changed.
TEST_P(FuzzCorpus, IsAnsweredOrRefused) {
  const auto& [name, target] = GetParam();
  const auto call = [target = target](const std::string& s) {
    target(reinterpret_cast<const std::uint8_t*>(s.data()), s.size());
  };
  std::size_t count = 0;
  for (const std::string& input : inputs(name)) {
    ++count;
    call(input);
    for (std::size_t part = 1; part < 8; ++part) {
      call(input.substr(0, input.size() * part / 8));
      std::string changed = input;
      if (!changed.empty())
        changed[(changed.size() * part + part) / 8 % changed.size()] ^= static_cast<char>(37 * part);
      call(changed);
    }
  }
  EXPECT_GE(count, 2u) << "tests/data/fuzz/" << name;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Peak of a process that reads these bytes and does nothing else.
double peak_bytes(Target target, const std::string& input) {
  const pid_t child = fork();
  if (child == 0) {
    target(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
    _exit(0);
  }
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  EXPECT_EQ(status, 0);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

std::string repeated(const std::string& head, const std::string& part, const std::string& tail) {
  std::string text = head;
  while (text.size() < (1 << 20)) text += part;
  return text + tail;
}

constexpr double kFixedBytes = 64e6;  // as tests/trace/fuzz_answer.h

// docs/trust.md: at most 100 bytes a byte of text. The densest structures that the formats of text know. yaml-cpp took
// 240 before its values were counted.
TEST(MemoryOfText, IsAtMostAHundredBytesAByte) {
  const std::vector<std::string> texts = {repeated("[", "a,", "a]"),
                                          repeated("", "a: b\n", ""),
                                          repeated("a: [", "1,", "1]\n"),
                                          repeated("", "- a\n", ""),
                                          repeated("a: ", "[", ""),
                                          repeated("{", "\"\":0,", "\"\":0}"),
                                          repeated("{\"a\":[", "0,", "0]}"),
                                          repeated("{\"a\":[", "[],", "[]]}"),
                                          repeated("{\"a\":[", "{},", "{}]}"),
                                          repeated("{\"a\":", "[", ""),
                                          repeated("", "&a *a ", ""),
                                          repeated("", "- ", "a"),
                                          repeated("", "? ", "a"),
                                          repeated("a: ", "!a ", "b"),
                                          repeated("\n", "{", "}"),
                                          repeated("{\"event\":\"result\",\"warnings\":[", "\"\",", "\"\"]}")};
  for (const auto& [name, target] : targets()) {
    if (name == "results_db" || name == "spans" || name == "safetensors") continue;
    const double base = peak_bytes(target, "");
    for (const std::string& text : texts)
      EXPECT_LE(peak_bytes(target, text) - base, 100.0 * static_cast<double>(text.size()) + kFixedBytes)
          << name << " " << text.substr(0, 40);
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Targets, FuzzCorpus, testing::ValuesIn(targets()),
                         [](const auto& info) { return info.param.first; });

}  // namespace
}  // namespace harness::fuzz
