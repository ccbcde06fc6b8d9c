// Writing JSON text by hand: strings, exact microseconds. No locale, no floating point.
#pragma once
#include <string>
#include <string_view>

#include "fsdp/core/types.h"

namespace harness {

// Appends `text` as a JSON string, quotes included. Control characters are escaped; bytes that are not UTF-8 become
// U+FFFD.
void append_json_string(std::string& out, std::string_view text);
// Appends nanoseconds as microseconds with exactly three decimals: 1234567 -> 1234.567.
void append_micros(std::string& out, fsdp::Nanos ns);
std::string grouped_micros(fsdp::Nanos ns);  // for people: "1,234,567.890"
// Copy of `text` in which bytes that are not UTF-8 are U+FFFD and control characters are spaces: for names that people
// read.
std::string printable(std::string_view text);

}  // namespace harness
