// Quantities with units, as users write them and as we print them. Sizes take B KB MB GB KiB MiB GiB, times
// ns us ms s, rates B/s ... GB/s or Gbit/s.
#pragma once
#include <string>
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

// They throw fsdp::ConfigError, one sentence without a place: what is wrong and an example of what is right.
fsdp::Bytes parse_bytes(const std::string& text);  // a number without a unit is bytes
fsdp::Nanos parse_nanos(const std::string& text);
double parse_bytes_per_second(const std::string& text);  // > 0
double parse_percent(const std::string& text);           // "2%" -> 0.02

// Exact: the largest unit that divides the value ("64MiB", "50us"), so that equal quantities have equal texts.
std::string exact_bytes(fsdp::Bytes n);
std::string exact_nanos(fsdp::Nanos t);
std::string exact_rate(double bytes_per_second);  // "10GB/s"

// For people, rounded.
std::string format_bytes(fsdp::Bytes n);  // "4.20 MiB"
std::string format_nanos(fsdp::Nanos t);  // "1.42 ms"

// The candidates nearest to `text` by edit distance, best first, for "did you mean".
std::string nearest(const std::string& text, const std::vector<std::string>& candidates, std::size_t n = 3);

}  // namespace harness
