// Readers of what comes from outside, each as a function of any bytes: it answers, or throws one sentence. Everything
// else (a crash, another exception, a broken promise) ends the process. libFuzzer calls one (fuzz_main.cc), the tests
// replay a kept corpus through all of them (replay_test.cc).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace harness::fuzz {

// Returns how many bytes the input is after decompression: what it may cost is measured by that.
using Target = std::size_t (*)(const std::uint8_t* bytes, std::size_t n);

std::size_t results_db(const std::uint8_t* bytes, std::size_t n);
std::size_t spans(const std::uint8_t* bytes, std::size_t n);
std::size_t spec(const std::uint8_t* bytes, std::size_t n);
std::size_t plan(const std::uint8_t* bytes, std::size_t n);
std::size_t hardware(const std::uint8_t* bytes, std::size_t n);
std::size_t config(const std::uint8_t* bytes, std::size_t n);
std::size_t lines(const std::uint8_t* bytes, std::size_t n);
std::size_t safetensors(const std::uint8_t* bytes, std::size_t n);
std::size_t exported(const std::uint8_t* bytes, std::size_t n);

inline const std::vector<std::pair<std::string, Target>>& targets() {
  static const std::vector<std::pair<std::string, Target>> all = {
      {"results_db", results_db}, {"spans", spans},   {"spec", spec},   {"plan", plan},
      {"hardware", hardware},     {"config", config}, {"lines", lines}, {"safetensors", safetensors},
      {"exported", exported}};
  return all;
}

}  // namespace harness::fuzz
