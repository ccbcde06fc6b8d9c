#include "fsdp/schedule/verb_log.h"

#include <array>

namespace fsdp {

std::string_view name_of(Verb v) {
  static constexpr std::array<std::string_view, 18> kNames{"acquire unsharded",
                                                           "all-gather",
                                                           "compute begin",
                                                           "compute end",
                                                           "release unsharded",
                                                           "acquire reduce",
                                                           "pack",
                                                           "reduce-scatter",
                                                           "all-reduce",
                                                           "release reduce",
                                                           "record",
                                                           "wait",
                                                           "optimizer begin",
                                                           "optimizer end",
                                                           "release gradient",
                                                           "cast",
                                                           "accumulate",
                                                           "copy out"};
  return kNames[static_cast<std::size_t>(v)];
}

std::string to_string(const VerbEntry& e) {
  std::string s(name_of(e.verb));
  s.append(" [").append(name_of(e.lane)).append("]");
  if (e.unit != kNoUnit) s.append(" unit ").append(std::to_string(e.unit));
  if (e.pass != Pass::kNone) s.append(" ").append(name_of(e.pass));
  if (e.slot >= 0) s.append(" slot ").append(std::to_string(e.slot));
  if (e.event != 0) s.append(" event ").append(std::to_string(e.event));
  if (e.bytes != 0) s.append(" ").append(std::to_string(e.bytes)).append(" B");
  if (e.prefetch) s.append(" (prefetch)");
  return s;
}

namespace {
std::string_view token_of(const VerbEntry& e, bool with_compute) {
  if (e.verb == Verb::kAllGather) return "AG";
  if (e.verb == Verb::kReduceScatter) return "RS";
  if (e.verb == Verb::kAllReduce) return "AR";
  if (with_compute && e.verb == Verb::kComputeBegin) return e.pass == Pass::kForward ? "F" : "B";
  return {};
}
std::string order(const VerbLog& log, bool with_compute) {
  std::string out;
  for (const VerbEntry& e : log) {
    const std::string_view token = token_of(e, with_compute);
    if (token.empty()) continue;
    if (!out.empty()) out += ' ';
    out.append(token).append(std::to_string(e.unit));
  }
  return out;
}
}  // namespace

std::string collective_order(const VerbLog& log) { return order(log, false); }
std::string cpu_order(const VerbLog& log) { return order(log, true); }

}  // namespace fsdp
