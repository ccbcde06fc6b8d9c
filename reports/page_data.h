// The records as the page's data: tables of texts and units that cases share, so that hundreds of cases stay small.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "reports/findings.h"
#include "reports/html.h"
#include "reports/json_writer.h"
#include "reports/policies.h"
#include "reports/predictions.h"
#include "reports/timeline.h"

namespace reports {

// Unit tables and environments are the same for most cases of a sweep: each distinct one is written once.
class SharedTables {
 public:
  std::size_t add(const std::vector<harness::UnitRecord>& units);
  std::size_t add(const std::map<std::string, std::string>& environment);
  PolicyTable& policies() { return policies_; }
  void write(JsonWriter& json) const;  // fields "unit_tables", "environments" and "policies" of the open object

 private:
  std::map<std::string, std::size_t> unit_index_, environment_index_;  // JSON text -> place
  std::vector<std::string> units_, environments_;
  PolicyTable policies_;
};

// One case as an object, without its timeline. `known_environment`: what the page tells of the sweep already.
void write_case(JsonWriter& json, const harness::CaseRecord& c, const std::vector<int>& at,
                const std::map<std::string, std::string>& known_environment, const ReportOptions& options,
                SharedTables& tables);

void write_findings(JsonWriter& json, const Findings& f);

}  // namespace reports
