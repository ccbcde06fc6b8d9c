// The options of a unit by name: as settings of a case, and as keys of a plan file that gives them unit by unit. One
// row an option is all there is to write for a new one, beside its field in UnitOptions.
#pragma once
#include <string>
#include <vector>

#include "fsdp/plan/unit_plan.h"

namespace fsdp {

struct UnitOptionRow {
  const char* name;
  const char* values;                                       // for --help
  void (*parse)(UnitOptions& to, const std::string& text);  // ConfigError "'TEXT' is not ...; allowed: ..."
  std::string (*text)(const UnitOptions& o);                // what parse() takes; equal options have equal texts
  void (*copy)(UnitOptions& to, const UnitOptions& from);
};

const std::vector<UnitOptionRow>& unit_option_table();
// Throws ConfigError listing the names.
const UnitOptionRow& unit_option(const std::string& name);

}  // namespace fsdp
