// Targets that read text: spec, plan, hardware, config.json, lines between processes.
#include <cstdlib>

#include "fsdp/core/errors.h"
#include "fsdp/plan/module_tree.h"
#include "fsdp/plan/wrap_policy.h"
#include "harness/cost/hardware.h"
#include "harness/sweep/spec.h"
#include "harness/trial/join_messages.h"
#include "harness/trial/lateness.h"
#include "harness/trial/messages.h"
#include "harness/trial/run_store.h"
#include "harness/workload/model_config.h"
#include "tests/fuzz/targets.h"

namespace harness::fuzz {
namespace {

std::string text_of(const std::uint8_t* bytes, std::size_t n) { return {reinterpret_cast<const char*>(bytes), n}; }

// A sentence, and of the kind that the caller is told to expect.
template <class Expected, class F>
void answered(F&& act) {
  try {
    act();
  } catch (const Expected& e) {
    if (std::string(e.what()).empty()) std::abort();
  }
}

std::size_t cases_of(const SweepSpec& s) {
  std::size_t product = 1;
  for (const auto& [name, values] : s.all_axes()) product *= values.size();
  return product;
}

// Paths would read files of this machine.
bool names_a_path(const std::string& text) { return text.find('/') != std::string::npos; }

}  // namespace

std::size_t spec(const std::uint8_t* bytes, std::size_t n) {
  const std::string text = text_of(bytes, n);
  if (names_a_path(text)) return n;
  answered<fsdp::Error>([&] {
    const SweepSpec s = parse_spec(text, "s.yaml");
    if (cases_of(s) > kMostCases) std::abort();
    for (const std::string& line : s.canonical())
      if (line.find(" is ") == std::string::npos) std::abort();
  });
  return n;
}

std::size_t plan(const std::uint8_t* bytes, std::size_t n) {
  answered<fsdp::Error>([&] { fsdp::parse_wrap_plan(text_of(bytes, n), "plan.yaml"); });
  return n;
}

std::size_t hardware(const std::uint8_t* bytes, std::size_t n) {
  answered<fsdp::Error>([&] { parse_hardware(to_yaml(parse_hardware(text_of(bytes, n), "h.yaml")), "again.yaml"); });
  return n;
}

std::size_t config(const std::uint8_t* bytes, std::size_t n) {
  answered<fsdp::Error>([&] { model_from_config(text_of(bytes, n), "config.json"); });
  return n;
}

std::size_t lines(const std::uint8_t* bytes, std::size_t n) {
  const std::string line = text_of(bytes, n);
  answered<fsdp::Error>([&] { rank_event_from_json(line); });
  answered<fsdp::Error>([&] { rank_command_from_json(line); });
  answered<fsdp::Error>([&] { seen_from_json(line); });
  answered<fsdp::Error>([&] { preparation_from_json(line); });
  answered<fsdp::Error>([&] { hello_from_json(line); });
  answered<fsdp::Error>([&] { rank_end_from_json(line); });
  answered<fsdp::Error>([&] { refusal_from_json(line); });
  answered<fsdp::Error>([&] { end_from_json(line); });
  answered<fsdp::Error>([&] { at_from_json(line); });
  answered<fsdp::Error>([&] { RunStore().take(0, line); });
  if (!names_a_path(line)) answered<fsdp::Error>([&] { rank_job_from_json(line); });
  return n;
}

}  // namespace harness::fuzz
