// Effective cases: settings that differ in words and make the same program. A pure function of settings.
#pragma once
#include <optional>
#include <string>

#include "harness/sweep/settings.h"

namespace harness {

// Equal for settings under which the scheduler does the same in the same order on the same units, all other settings
// being equal: found by driving the scheduler, not by rules about settings. std::nullopt where the settings make no
// plan (a file that is gone).
std::optional<std::string> effective_key(const CaseSettings& settings);

}  // namespace harness
