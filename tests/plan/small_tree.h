// Trees from text: "root{A(60),B:Linear(5){B1(120),B2(50)},C:ModuleList{C1(70)}}" - name, :type (default: the name),
// (elements of its own weight), {children}.
#pragma once
#include <cctype>
#include <stdexcept>
#include <string>

#include "fsdp/plan/module_tree.h"

namespace fsdp {

class SmallTree {
 public:
  static ModuleTree of(const std::string& text) {
    SmallTree s(text);
    s.module(-1);
    if (s.at_ != text.size()) throw std::invalid_argument("left over: " + text.substr(s.at_));
    return s.tree_;
  }

 private:
  explicit SmallTree(const std::string& text) : text_(text) {}

  bool take(char c) { return at_ < text_.size() && text_[at_] == c && ++at_ > 0; }
  std::string word() {
    const auto begin = at_;
    while (at_ < text_.size() && std::isalnum(static_cast<unsigned char>(text_[at_]))) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  void module(ModuleId parent) {
    const std::string name = word();
    const std::string type = take(':') ? word() : name;
    const ModuleId id = tree_.add_module(parent, name, type);
    if (take('(')) {
      tree_.add_parameter(id, "weight", {std::stoll(word())}, InitRule::kUniform);
      if (!take(')')) throw std::invalid_argument("no )");
    }
    if (!take('{')) return;
    do module(id);
    while (take(','));
    if (!take('}')) throw std::invalid_argument("no }");
  }

  const std::string& text_;
  std::size_t at_ = 0;
  ModuleTree tree_;
};

}  // namespace fsdp
