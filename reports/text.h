// Words and numbers as a reader sees them: durations, sizes, ratios with their units.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "fsdp/core/types.h"
#include "harness/analysis/partition.h"
#include "harness/store/records.h"

namespace reports {

std::string duration_text(double ns);             // "12.4 ms", three significant digits
std::string bytes_text(fsdp::Bytes bytes);        // "312 MiB"
std::string percent_text(double fraction);        // 0.081 -> "8.1 %"
std::string ratio_text(double ratio);             // 2.913 -> "2.91x"
std::string rate_text(double tokens_per_second);  // "12,300 tokens/s"
std::string count_text(std::int64_t n, std::string_view singular, std::string_view plural);  // "1 unit", "9 units"

std::string_view class_text(harness::PartitionClass c);  // "exposed all-gather, forward"
std::string_view collective_text(fsdp::SpanKind k);      // "all-gather"; empty when it is none

// "400MiB", "1.5GB", "1024": bytes; std::nullopt for "none", "" and what is no size.
std::optional<fsdp::Bytes> bytes_from(std::string_view text);

const std::string* setting(const harness::CaseRecord& c, std::string_view name);  // nullptr when the case has none
std::optional<fsdp::Bytes> budget_of(const harness::CaseRecord& c);

}  // namespace reports
