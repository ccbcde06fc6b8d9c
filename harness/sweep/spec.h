// A sweep spec: the YAML file that names cases as the product of axes over base settings.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/core/types.h"
#include "harness/analysis/statistics.h"
#include "harness/sweep/boundary_spec.h"
#include "harness/sweep/settings.h"

namespace harness {

// What a trial of an interleaved case does.
struct RoundSpec {
  int repetitions = 20;  // of `steps` steps each, fewer when they take longer than `time`
  fsdp::Nanos time = 2'000'000'000;
  bool pin = true;  // the ranks of a CPU case keep to cores of their own (trial/rank_cores.h)
  // Of the step of a case with no other beside it, which has no ratio; what the spec says as relative_ci, if it does.
  double alone_relative_ci = 0.02;
};

struct SweepSpec {
  using Axis = std::pair<std::string, std::vector<std::string>>;      // setting, canonical values in the spec's order
  using Exclusion = std::map<std::string, std::vector<std::string>>;  // all settings must match, each any of its values

  std::string name;
  std::string file;  // as given, for messages
  std::string text;
  Files files;  // that the values name, read once
  CaseSettings base;
  std::vector<Axis> axes;
  std::vector<Exclusion> exclude;
  // relative_ci: 2 %; with interleave, of ratios, kPairedMargin / 2 unless the spec says it, so that equal arms can be
  // called that.
  RepeatPolicy repeat{6, 30, 0.02, 30'000'000'000};
  std::optional<BoundarySpec> boundary;
  bool interleave = false;  // fresh processes for every sample, the cases in turns (harness/sweep/interleave.h)
  RoundSpec round;          // with interleave
  bool trace = true;
  fsdp::Nanos timeout = 120'000'000'000;  // per trial

  // One line per fact of the spec that changes what is measured, in a fixed order: what the hash is of, and what two
  // specs are compared by. The name, comments and layout do not count.
  std::vector<std::string> canonical() const;
  std::vector<Axis> all_axes() const;  // the boundary's setting last
  std::string hash() const;            // 16 hex digits
};

// Throws fsdp::ConfigError "[file:line] what; what would be right". Files above kLargestSpec bytes are not read.
inline constexpr std::size_t kLargestSpec = 1 << 20;
// Files that the values name come from `files`.
SweepSpec read_spec(const std::string& path, FileTexts files = FileTexts());
SweepSpec parse_spec(const std::string& text, const std::string& file, FileTexts files = FileTexts());

struct SweepCase {
  std::string id;
  CaseSettings settings;
  std::vector<std::pair<std::string, std::string>> axes;
  std::string config_error;       // not empty: the case cannot run as it is set
  std::string environment_error;  // not empty: this build or machine cannot run it; the text holds the remedy
};

// More cases than that are refused when the spec is read: the product of the axes and of the boundary's values.
inline constexpr std::uint64_t kMostCases = 100'000;

// The product of the axes, the last one fastest, without the excluded; cases with the same settings once. Each case's
// settings are checked as far as it can be done without running.
std::vector<SweepCase> expand(const SweepSpec& spec);
// The same with every value of the boundary's setting at every point: what the sweep may run.
std::vector<SweepCase> all_cases(const SweepSpec& spec);

// As far as it can be told without running: settings, and the wrap against the model's modules. Throws
// fsdp::ConfigError, fsdp::EnvironmentError.
void check_case(const CaseSettings& settings);

// The case at one point: the base with these axes' values; checked as expand() does.
SweepCase make_case(const SweepSpec& spec, const std::vector<std::pair<std::string, std::string>>& axes);

// The first fact in which the two differ: "steps is 4 there and 8 here".
std::string first_difference(const SweepSpec& there, const SweepSpec& here);

}  // namespace harness
