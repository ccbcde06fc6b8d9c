#include "harness/advise/effective_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "fsdp/core/errors.h"
#include "fsdp/schedule/scripted_step.h"
#include "harness/advise/snippet.h"
#include "harness/sweep/text.h"

namespace harness {
namespace {

constexpr int kMicroBatches = 3;  // more repeat the middle one

// What the plan and the order of verbs say already, or what changes nothing that is measured.
constexpr std::array<std::string_view, 10> kSaidBySchedule = {
    "wrap",           "strategy",     "reshard_after_forward", "forward_prefetch", "backward_prefetch",
    "prefetch_order", "max_inflight", "reduce_scatter_slots",  "accumulate_sync",  "step_timeout"};

std::string other_settings(const CaseSettings& c) {
  std::string out;
  for (const auto& [name, value] : all_settings(c))
    if (std::find(kSaidBySchedule.begin(), kSaidBySchedule.end(), name) == kSaidBySchedule.end())
      out += name + "=" + value + "\n";
  return out;
}

std::string units_text(const Policy& p, const std::vector<fsdp::UnitTraits>& traits) {
  std::string out;
  for (std::size_t u = 0; u < traits.size(); ++u) {
    const fsdp::UnitSpec& unit = p.plan.units[u];
    out += fmt::format("{} {} {} {} {} {}\n", fmt::join(unit.modules, ","), unit.numel, traits[u].unsharded_bytes,
                       traits[u].reduce_bytes, static_cast<int>(unit.options.param_dtype),
                       static_cast<int>(unit.options.reduce_dtype));
  }
  return out;
}

// Which slot is taken says nothing: that one had to be waited for does, and stands in the log.
std::string log_text(const fsdp::VerbLog& log) {
  std::string out;
  for (fsdp::VerbEntry e : log) {
    e.slot = -1;
    out += fsdp::to_string(e) + "\n";
  }
  return out;
}

// What the scheduler does in a step whose order it knows, with collectives that take no time.
fsdp::VerbLog second_step(const CaseSettings& c, const Policy& p, const std::vector<fsdp::UnitTraits>& traits,
                          const std::vector<fsdp::UnitBytes>& bytes) {
  std::vector<bool> all_reduces;
  for (const fsdp::UnitTraits& t : traits) all_reduces.push_back(t.all_reduces);
  fsdp::MemoryMeter meter;
  fsdp::VirtualDevice device;
  fsdp::VirtualCollectives collectives(device, c.world, [](const fsdp::CollectiveCall&) { return fsdp::Nanos{0}; });
  fsdp::CountingUnitMemory memory(bytes, all_reduces, meter);
  fsdp::Scheduler scheduler(traits, scheduler_options_of(c), device, collectives, memory, &meter);
  const fsdp::Script script = fsdp::make_script(p.tree, p.plan, c.checkpoint == Checkpoint::kBlock);
  fsdp::VerbLog log;
  for (int step = 0; step < 2; ++step) {
    if (step == 1) scheduler.set_log(&log);
    fsdp::run_scripted_step(scheduler, device, step, script, {},
                            {std::min(c.accumulate, kMicroBatches), c.accumulate_sync == AccumulateSync::kEvery});
  }
  return log;
}

}  // namespace

std::optional<std::string> effective_key(const CaseSettings& c) try {
  if (c.prefetch_order) return to_json(c) + c.prefetch_order->text;
  const Policy p = policy_of(c);
  std::vector<fsdp::UnitBytes> bytes;
  std::vector<fsdp::UnitTraits> traits;
  for (const fsdp::UnitSpec& unit : p.plan.units) {
    bytes.push_back(fsdp::unit_bytes(unit, p.tree, c.world, 8));
    traits.push_back(fsdp::unit_traits(unit, bytes.back(), c.world));
  }
  const std::string schedule = units_text(p, traits) + log_text(second_step(c, p, traits, bytes));
  return other_settings(c) + hex(text_hash(schedule), 16) + "/" + std::to_string(schedule.size());
} catch (const fsdp::Error&) {
  return std::nullopt;
}

}  // namespace harness
