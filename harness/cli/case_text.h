// One case as `run` shows it.
#pragma once
#include <string>

#include "harness/store/records.h"

namespace harness::cli {

std::string case_text(const CaseRecord& r);
// The keys: the CSV columns, losses, grad_norms, unit_metrics, environment; numbers read back exactly.
std::string case_json(const CaseRecord& r);

}  // namespace harness::cli
