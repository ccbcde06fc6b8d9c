// Small YAML files, read within bounds.
#pragma once
#include <yaml-cpp/yaml.h>

#include <string>

namespace fsdp {

// A parsed value takes some 400 bytes, whatever its text: what is read holds this many at most.
inline constexpr int kMostYamlValues = 100'000;

// As YAML::Load. Counts the values before any is kept: more than kMostYamlValues throw ConfigError, which names `file`
// and the line. Text that is not YAML throws YAML::Exception.
YAML::Node load_yaml(const std::string& text, const std::string& file);

}  // namespace fsdp
