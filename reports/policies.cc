#include "reports/policies.h"

#include "fsdp/core/errors.h"
#include "fsdp/core/escape.h"
#include "harness/advise/recommend.h"
#include "harness/advise/snippet.h"
#include "reports/json_writer.h"
#include "reports/timeline.h"

namespace reports {
namespace {

constexpr std::size_t kPolicyLimit = 40'000;

std::string fsdp1_text(const harness::Policy& policy) {
  const auto obstacle = harness::fsdp1_obstacle(policy);
  return obstacle ? fsdp::python_comment("FSDP1 cannot hold these units: " + *obstacle)
                  : harness::fsdp1_snippet(policy);
}

}  // namespace

std::optional<std::size_t> PolicyTable::add(const harness::CaseRecord& c) {
  if (c.settings.empty()) return std::nullopt;
  JsonWriter json;
  try {
    const harness::Policy policy = harness::policy_of(harness::settings_of(c));
    json.begin_array().value(std::string_view(harness::fsdp2_snippet(policy)), kPolicyLimit);
    json.value(std::string_view(fsdp1_text(policy)), kPolicyLimit).end_array();
  } catch (const fsdp::Error&) {
    return std::nullopt;
  }
  const auto [place, fresh] = place_.emplace(json.text(), texts_.size());
  if (fresh) texts_.push_back(json.text());
  return place->second;
}

std::string PolicyTable::packed() const {
  if (texts_.empty()) return {};
  JsonWriter json;
  json.begin_array();
  for (const std::string& text : texts_) json.raw(text);
  json.end_array();
  return reports::packed(json.text());
}

}  // namespace reports
