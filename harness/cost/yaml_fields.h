// Reading a YAML mapping strictly: every key is asked for, what nobody asked for is an error, numbers are finite and
// not negative. Errors are fsdp::ConfigError "file:line: [key] what; what would be right". Private to the room.
#pragma once
#include <yaml-cpp/yaml.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace harness::cost {

class Fields {
 public:
  Fields(YAML::Node node, std::string place, std::string path);

  bool has(const std::string& key);
  void number(const std::string& key, double& out);
  void number(const std::string& key, int& out);
  void text(const std::string& key, std::string& out);
  void flag(const std::string& key, bool& out);
  void texts(const std::string& key, std::vector<std::string>& out);
  // A mapping inside this one; not called when it is absent.
  void map(const std::string& key, const std::function<void(Fields&)>& read);
  // Each entry of a mapping with free keys.
  void each(const std::string& key, const std::function<void(const std::string&, Fields&)>& read);
  // Each entry of a list of mappings.
  void list(const std::string& key, const std::function<void(Fields&)>& read);
  // Throws for keys that nobody has asked for, with the nearest that was.
  void done() const;
  [[noreturn]] void fail(const std::string& key, const std::string& what) const;

 private:
  YAML::Node take(const std::string& key);
  YAML::Node node_;
  std::string place_, path_;
  std::set<std::string> known_;
};

// Parses text; a syntax error is a ConfigError with its line.
YAML::Node parse_yaml(const std::string& text, const std::string& place);

}  // namespace harness::cost
