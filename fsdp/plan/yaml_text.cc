#include "fsdp/plan/yaml_text.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <sstream>

#include "fsdp/core/errors.h"

namespace fsdp {
namespace {

[[noreturn]] void refuse(const std::string& file, long line) {
  throw ConfigError("[" + file + ":" + std::to_string(line) + "] more than " + std::to_string(kMostYamlValues) +
                    " values are more than is read from one file; take values away");
}

// Each opens a value. The parser looks ahead over all that follow each other before it tells of the first.
void refuse_many_brackets(const std::string& text, const std::string& file) {
  int brackets = 0;
  for (std::size_t at = 0; (at = text.find_first_of("[{", at)) != std::string::npos; ++at) {
    if (++brackets > kMostYamlValues)
      refuse(file, 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  }
}

class Counter : public YAML::EventHandler {
 public:
  explicit Counter(const std::string& file) : file_(file) {}
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& at, YAML::anchor_t) override { count(at); }
  void OnAlias(const YAML::Mark& at, YAML::anchor_t) override { count(at); }
  void OnScalar(const YAML::Mark& at, const std::string&, YAML::anchor_t, const std::string&) override { count(at); }
  void OnSequenceStart(const YAML::Mark& at, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    count(at);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& at, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    count(at);
  }
  void OnMapEnd() override {}

 private:
  void count(const YAML::Mark& at) {
    if (++values_ > kMostYamlValues) refuse(file_, at.line + 1);
  }

  const std::string& file_;
  int values_ = 0;
};

}  // namespace

YAML::Node load_yaml(const std::string& text, const std::string& file) {
  refuse_many_brackets(text, file);
  {
    std::istringstream in(text);
    YAML::Parser parser(in);
    Counter counter(file);
    parser.HandleNextDocument(counter);
  }
  return YAML::Load(text);
}

}  // namespace fsdp
