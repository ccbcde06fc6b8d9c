// Dimensions of published models by name.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "harness/workload/model_settings.h"

namespace harness {

const std::vector<std::pair<std::string, ModelSettings>>& model_preset_table();

}  // namespace harness
