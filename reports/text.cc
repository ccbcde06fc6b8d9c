#include "reports/text.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace reports {
namespace {

using harness::PartitionClass;

// Three significant digits, never an exponent.
std::string three_digits(double v) {
  const double size = std::fabs(v);
  if (size >= 99.95) return fmt::format("{:.0f}", v);
  if (size >= 9.995) return fmt::format("{:.1f}", v);
  return fmt::format("{:.2f}", v);
}

std::string grouped(std::int64_t n) {
  const std::string digits = std::to_string(n);
  const std::size_t sign = n < 0 ? 1 : 0;
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

constexpr std::array<std::pair<std::string_view, double>, 7> kByteUnits{
    {{"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}}};

}  // namespace

std::string duration_text(double ns) {
  const double size = std::fabs(ns);
  if (size < 999.5) return fmt::format("{:.0f} ns", ns);
  if (size < 999.5e3) return three_digits(ns / 1e3) + " µs";
  if (size < 999.5e6) return three_digits(ns / 1e6) + " ms";
  return three_digits(ns / 1e9) + " s";
}

std::string bytes_text(fsdp::Bytes bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double v = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::fabs(v) >= 1023.5 && unit + 1 < kUnits.size()) v /= 1024, ++unit;
  return (unit == 0 ? std::to_string(bytes) : three_digits(v)) + " " + std::string(kUnits[unit]);
}

std::string percent_text(double fraction) {
  const double percent = 100 * fraction;
  return std::fabs(percent) < 9.95 ? fmt::format("{:.1f} %", percent) : fmt::format("{:.0f} %", percent);
}

std::string ratio_text(double ratio) { return three_digits(ratio) + "x"; }

std::string rate_text(double tokens_per_second) {
  if (tokens_per_second < 99.95) return three_digits(tokens_per_second) + " tokens/s";
  return grouped(std::llround(tokens_per_second)) + " tokens/s";
}

std::string count_text(std::int64_t n, std::string_view singular, std::string_view plural) {
  return fmt::format("{} {}", grouped(n), n == 1 ? singular : plural);
}

std::string_view class_text(PartitionClass c) {
  switch (c) {
    case PartitionClass::kCompute:
      return "compute";
    case PartitionClass::kOverlapped:
      return "overlapped compute";
    case PartitionClass::kExposedAllGatherForward:
      return "exposed all-gather, forward";
    case PartitionClass::kExposedAllGatherBackward:
      return "exposed all-gather, backward";
    case PartitionClass::kExposedReduceScatter:
      return "exposed reduce-scatter";
    case PartitionClass::kExposedOther:
      return "other exposed communication";
    case PartitionClass::kCopy:
      return "copy";
    case PartitionClass::kHost:
      return "host";
    case PartitionClass::kMemoryWait:
      return "memory wait";
    case PartitionClass::kOptimizer:
      return "optimizer";
    case PartitionClass::kIdle:
      return "idle";
  }
  return "?";
}

std::string_view collective_text(fsdp::SpanKind k) {
  switch (k) {
    case fsdp::SpanKind::kAllGather:
      return "all-gather";
    case fsdp::SpanKind::kReduceScatter:
      return "reduce-scatter";
    case fsdp::SpanKind::kAllReduce:
      return "all-reduce";
    case fsdp::SpanKind::kOtherCollective:
      return "other collective";
    default:
      return "";
  }
}

std::optional<fsdp::Bytes> bytes_from(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty()) unit = "B";
  for (const auto& [name, size] : kByteUnits) {
    if (unit == name) return static_cast<fsdp::Bytes>(std::llround(number * size));
  }
  return std::nullopt;
}

const std::string* setting(const harness::CaseRecord& c, std::string_view name) {
  for (const auto* list : {&c.axes, &c.settings}) {
    for (const auto& [key, value] : *list) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

std::optional<fsdp::Bytes> budget_of(const harness::CaseRecord& c) {
  const std::string* text = setting(c, "memory_budget");
  return text ? bytes_from(*text) : std::nullopt;
}

}  // namespace reports
