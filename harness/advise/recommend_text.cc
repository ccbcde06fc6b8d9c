#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/advise/recommend.h"
#include "harness/sweep/quantities.h"

namespace harness {
namespace {

using nlohmann::ordered_json;

std::string line_of(const Contender& k, const Recommendation& r, const std::vector<CaseRecord>& cases) {
  std::string s = fmt::format(
      "{}  {}/{} [{}, {}]", label_of(cases[k.index]), format_nanos(static_cast<fsdp::Nanos>(k.cost)), r.unit,
      format_nanos(static_cast<fsdp::Nanos>(k.low)), format_nanos(static_cast<fsdp::Nanos>(k.high)));
  return k.peak > 0 ? s + ", peak " + format_bytes(k.peak) : s;
}

ordered_json json_of(const Contender& k, const std::vector<CaseRecord>& cases) {
  const CaseRecord& c = cases[k.index];
  ordered_json settings = ordered_json::object();
  for (const auto& [name, value] : c.settings) settings[name] = value;
  ordered_json j = {{"case", c.id},           {"label", label_of(c)},
                    {"cost_ns", k.cost},      {"cost_low_ns", k.low},
                    {"cost_high_ns", k.high}, {"peak_bytes", k.peak > 0 ? ordered_json(k.peak) : ordered_json(nullptr)},
                    {"emulated", c.emulated}, {"predicted", c.predicted}};
  if (!k.why.empty()) j["why"] = k.why;
  j["settings"] = settings;
  return j;
}

ordered_json json_of(const std::vector<Contender>& all, const std::vector<CaseRecord>& cases) {
  ordered_json j = ordered_json::array();
  for (const Contender& k : all) j.push_back(json_of(k, cases));
  return j;
}

}  // namespace

std::string recommendation_text(const Recommendation& r, const std::vector<CaseRecord>& cases) {
  std::string s = r.workload + (r.limit ? fmt::format(", within {}", format_bytes(*r.limit)) : "") + "\n";
  if (!r.best) {
    s += "  nothing fits\n";
    for (const Contender& k : r.pareto)
      s += fmt::format("  {}{}\n", line_of(k, r, cases), k.why.empty() ? "" : ": " + k.why);
  } else {
    s += "  best       " + line_of(*r.best, r, cases) + (cases[r.best->index].emulated ? "  [emulated network]" : "") +
         "\n";
    for (const std::string& reason : r.reasons) s += "             - " + reason + "\n";
    if (!r.group.empty()) {
      s += fmt::format("  as fast    {} other{} within the error of the prediction ({:.0f} %)\n", r.group.size(),
                       r.group.size() == 1 ? "" : "s", 100 * r.group_error);
      for (std::size_t i = 0; i < std::min<std::size_t>(r.group.size(), 4); ++i)
        s += "             " + line_of(r.group[i], r, cases) + "\n";
      if (r.group.size() > 4) s += fmt::format("             and {} more\n", r.group.size() - 4);
    }
    for (const Contender& k : r.runners_up)
      s += fmt::format("  runner-up  {}\n             - {}\n", line_of(k, r, cases), k.why);
    for (const Contender& k : r.too_large)
      s += fmt::format("  too large  {}\n             - {}\n", line_of(k, r, cases), k.why);
    if (r.pareto.size() > 1) {
      s += fmt::format("  time against memory, nothing else is both faster and smaller:\n");
      for (const Contender& k : r.pareto) s += "             " + line_of(k, r, cases) + "\n";
    }
    s += fmt::format("  confidence {}: {}\n", name_of(r.confidence), r.confidence_why);
  }
  for (const std::string& w : r.warnings) s += "  warning    " + w + "\n";
  return s;
}

std::string recommendations_json(const std::vector<Recommendation>& all, const std::vector<CaseRecord>& cases) {
  ordered_json out = ordered_json::array();
  for (const Recommendation& r : all) {
    ordered_json j = {{"workload", r.workload},
                      {"unit", r.unit},
                      {"memory_bytes", r.limit ? ordered_json(*r.limit) : ordered_json(nullptr)},
                      {"best", r.best ? json_of(*r.best, cases) : ordered_json(nullptr)},
                      {"runners_up", json_of(r.runners_up, cases)},
                      {"too_large", json_of(r.too_large, cases)},
                      {"group", json_of(r.group, cases)},
                      {"group_error", r.group_error},
                      {"pareto", json_of(r.pareto, cases)},
                      {"reasons", r.reasons},
                      {"warnings", r.warnings},
                      {"confidence", name_of(r.confidence)},
                      {"confidence_why", r.confidence_why}};
    if (r.best) {
      try {
        const Policy policy = policy_of(settings_of(cases[r.best->index]));
        j["fsdp2"] = fsdp2_snippet(policy);
        j["fsdp1"] = fsdp1_obstacle(policy) ? ordered_json(nullptr) : ordered_json(fsdp1_snippet(policy));
      } catch (const std::exception& e) {
        j["snippet_error"] = e.what();
      }
    }
    out.push_back(std::move(j));
  }
  return ordered_json{{"recommendations", out}}.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace harness
