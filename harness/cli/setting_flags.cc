#include "harness/cli/setting_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "fsdp/core/errors.h"
#include "fsdp/core/utf8.h"

namespace harness::cli {
std::string flag_of(const std::string& setting) {
  std::string flag = "--" + setting;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

void SettingFlags::add_to(CLI::App& command) {
  for (const SettingRow& row : setting_table()) {
    command.add_option(flag_of(row.name), given_[row.name], row.help + " (default " + row.standard + ")")
        ->type_name(row.values)
        ->group(row.heading);
  }
}

bool SettingFlags::given(const std::string& setting) const {
  const auto found = given_.find(setting);
  return found != given_.end() && !found->second.empty();
}

CaseSettings SettingFlags::settings() const {
  CaseSettings c;
  for (const SettingRow& row : setting_table()) {
    if (!given(row.name)) continue;
    const std::string& text = given_.at(row.name);
    if (!fsdp::is_utf8(text))
      throw fsdp::ConfigError(fmt::format("[{}] \"{}\" is not UTF-8, as settings are kept; give the file another name",
                                          flag_of(row.name), text));
    apply_setting(c, row.name, text);
  }
  return c;
}

}  // namespace harness::cli
