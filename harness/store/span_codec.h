// Spans of one rank as a compact text of bytes: variable-length integers, differences of times, then deflate. A step of
// some hundred spans takes a few KiB.
#pragma once
#include <string>
#include <vector>

#include "fsdp/core/span.h"

namespace harness {

std::string encode_spans(const std::vector<fsdp::Span>& spans);
// Throws fsdp::ConfigError on bytes that encode_spans did not write.
std::vector<fsdp::Span> decode_spans(const std::string& bytes);

}  // namespace harness
