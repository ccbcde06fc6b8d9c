// Quantities with units, as users write them and as we print them. INTERFACE: sizes take B KB MB GB KiB MiB GiB, times
// ns us ms s, rates B/s ... GB/s or Gbit/s.
#pragma once
#include <string>
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

fsdp::Bytes parse_bytes(const std::string& text);             // throws fsdp::ConfigError
fsdp::Nanos parse_nanos(const std::string& text);             // throws fsdp::ConfigError
double parse_bytes_per_second(const std::string& text);       // throws fsdp::ConfigError
double parse_percent(const std::string& text);                // "2%" -> 0.02

std::string format_bytes(fsdp::Bytes n);    // "4.20 MiB"
std::string format_nanos(fsdp::Nanos t);    // "1.42 ms"

// The candidates nearest to `text` by edit distance, best first, for "did you mean".
std::string nearest(const std::string& text, const std::vector<std::string>& candidates, std::size_t n = 3);

}  // namespace harness
