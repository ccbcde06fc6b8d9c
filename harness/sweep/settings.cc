#include "harness/sweep/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fsdp/core/errors.h"
#include "harness/sweep/quantities.h"
#include "harness/sweep/text.h"

namespace harness {

const SettingRow& setting_row(const std::string& name) {
  const auto& table = setting_table();
  const auto found = std::find_if(table.begin(), table.end(), [&](const SettingRow& row) { return row.name == name; });
  if (found != table.end()) return *found;
  std::vector<std::string> names;
  for (const SettingRow& row : table) names.push_back(row.name);
  throw fsdp::ConfigError(fmt::format("[{}] unknown setting; nearest: {}", name, nearest(name, names)));
}

bool has_role(const std::string& setting, Role role) {
  const auto& table = setting_table();
  return std::any_of(table.begin(), table.end(),
                     [&](const SettingRow& row) { return row.name == setting && row.role == role; });
}

void apply_setting(CaseSettings& c, const std::string& name, const std::string& text, FileTexts& files) {
  const SettingRow& row = setting_row(name);
  try {
    row.parse(c, trim(text), files);
  } catch (const fsdp::ConfigError& e) {
    const std::string what = e.what();
    throw fsdp::ConfigError(what.rfind("[" + name, 0) == 0 ? what : with_place(name, what));
  }
}

void apply_setting(CaseSettings& c, const std::string& name, const std::string& text) {
  FileTexts disk;
  apply_setting(c, name, text, disk);
}

std::string setting_text(const CaseSettings& c, const std::string& name) { return setting_row(name).print(c); }

SettingTexts all_settings(const CaseSettings& c) {
  SettingTexts out;
  for (const SettingRow& row : setting_table()) out.emplace_back(row.name, row.print(c));
  return out;
}

CaseSettings settings_from(const SettingTexts& texts, FileTexts& files) {
  CaseSettings c;
  for (const auto& [name, text] : texts) apply_setting(c, name, text, files);
  return c;
}

SettingTexts with_defaults(SettingTexts texts) {
  for (const SettingRow& row : setting_table()) {
    const bool there = std::any_of(texts.begin(), texts.end(), [&](const auto& t) { return t.first == row.name; });
    if (!there) texts.emplace_back(row.name, row.standard);
  }
  return texts;
}

std::string to_json(const CaseSettings& c) {
  nlohmann::ordered_json out;
  for (const SettingRow& row : setting_table()) {
    const std::string text = row.print(c);
    if (row.number && text.find_first_not_of("0123456789") == std::string::npos) {
      out[row.name] = std::stoull(text);
    } else {
      out[row.name] = text;
    }
  }
  return out.dump();
}

Files files_of(const CaseSettings& c) {
  Files out;
  for (const auto& file : {c.wrap.file, c.prefetch_order, c.hardware.file})
    if (file) out.push_back(file);
  return out;
}

}  // namespace harness
