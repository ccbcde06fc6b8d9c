// Small text tools of the sweep room: strict whole numbers, splitting, and the place in front of an error's text.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/core/escape.h"

namespace harness {

std::string trim(const std::string& text);
std::vector<std::string> split(const std::string& text, char separator);  // pieces trimmed; "a,,b" has an empty piece
std::optional<std::int64_t> whole_number(const std::string& text);        // the whole text, or nothing
std::string lower(std::string text);
// A setting's value where people read it: the model of a config.json without its content. Records keep the exact text.
std::string readable_value(const std::string& setting, const std::string& value);
// The same of a case's axes: "wrap=block, backward_prefetch=pre"; `of_none` when there is no axis.
std::string axes_text(const std::vector<std::pair<std::string, std::string>>& axes,
                      const std::string& of_none = "base");
using fsdp::shell_quoted;

// "[seed] x" at "a.yaml:3" -> "[a.yaml:3: seed] x"; text without a bracket gets one.
std::string with_place(const std::string& place, const std::string& message);

// 64-bit FNV-1a with a final mix: ids and hashes of canonical texts. Not for secrets.
std::uint64_t text_hash(const std::string& text);
std::string hex(std::uint64_t value, int digits);  // the low digits, lower case

}  // namespace harness
