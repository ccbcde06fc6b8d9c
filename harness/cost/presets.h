// The YAML files of presets/, built in. Private to the room.
#pragma once
#include <string>
#include <vector>

namespace harness::cost {

std::vector<std::string> preset_names();           // file names without .yaml, sorted
std::string preset_text(const std::string& name);  // empty for a name that is not there

}  // namespace harness::cost
