// One flag for each row of the settings table.
#pragma once
#include <map>
#include <string>

#include "harness/sweep/settings.h"

namespace CLI {
class App;
}

namespace harness::cli {

class SettingFlags {
 public:
  // Adds the flags to `command`, grouped and explained. REQUIRES: *this outlives the parsing.
  void add_to(CLI::App& command);
  // What was given, on top of the defaults. Throws fsdp::ConfigError.
  CaseSettings settings() const;
  bool given(const std::string& setting) const;

 private:
  std::map<std::string, std::string> given_;  // by setting name; empty: not given
};

// "forward_prefetch" -> "--forward-prefetch"
std::string flag_of(const std::string& setting);

}  // namespace harness::cli
