#include "harness/cli/setting_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "fsdp/core/errors.h"
#include "fsdp/core/utf8.h"

namespace harness::cli {
namespace {

// Headings of --help, by the first setting below them.
const std::map<std::string, std::string> kHeadings = {{"device", "What is run"},
                                                      {"wrap", "How it is sharded"},
                                                      {"forward_prefetch", "What overlaps with what"},
                                                      {"param_dtype", "How a step computes"},
                                                      {"collectives", "Network and memory"},
                                                      {"hardware", "Prediction (device virtual)"},
                                                      {"seed", "Measuring"}};

}  // namespace

std::string flag_of(const std::string& setting) {
  std::string flag = "--" + setting;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

void SettingFlags::add_to(CLI::App& command) {
  std::string heading;
  for (const SettingInfo& info : setting_table()) {
    if (const auto h = kHeadings.find(info.name); h != kHeadings.end()) heading = h->second;
    command.add_option(flag_of(info.name), given_[info.name], info.help + " (default " + info.standard + ")")
        ->type_name(info.values)
        ->group(heading);
  }
}

bool SettingFlags::given(const std::string& setting) const {
  const auto found = given_.find(setting);
  return found != given_.end() && !found->second.empty();
}

CaseSettings SettingFlags::settings() const {
  CaseSettings c;
  for (const SettingInfo& info : setting_table()) {
    const auto given = given_.find(info.name);
    if (given == given_.end() || given->second.empty()) continue;
    if (!fsdp::is_utf8(given->second))
      throw fsdp::ConfigError(fmt::format("[{}] \"{}\" is not UTF-8, as settings are kept; give the file another name",
                                          flag_of(info.name), given->second));
    apply_setting(c, info.name, given->second);
  }
  return c;
}

}  // namespace harness::cli
