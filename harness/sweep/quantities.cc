#include "harness/sweep/quantities.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "fsdp/core/errors.h"
#include "fsdp/core/sizes.h"
#include "fsdp/plan/nearest.h"
#include "harness/sweep/text.h"

namespace harness {
namespace {

struct Unit {
  const char* name;
  double factor;
};
constexpr Unit kSizes[] = {
    {"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"KiB", 1024}, {"MiB", 1024 * 1024}, {"GiB", 1024. * 1024 * 1024}};
constexpr Unit kTimes[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
constexpr Unit kRates[] = {{"B/s", 1},
                           {"KB/s", 1e3},
                           {"MB/s", 1e6},
                           {"GB/s", 1e9},
                           {"KiB/s", 1024},
                           {"MiB/s", 1024 * 1024},
                           {"GiB/s", 1024. * 1024 * 1024},
                           {"Mbit/s", 1e6 / 8},
                           {"Gbit/s", 1e9 / 8}};
constexpr double kLargest = 9.0e18;  // below 2^63

// "1.5 GiB" -> 1.5 and "GiB"; nothing if it does not start with a number.
struct Quantity {
  double number;
  std::string unit;
};
std::optional<Quantity> read_quantity(const std::string& text) {
  const std::string t = trim(text);
  Quantity q{};
  const auto [at, error] = std::from_chars(t.data(), t.data() + t.size(), q.number, std::chars_format::fixed);
  if (t.empty() || error != std::errc{} || !std::isfinite(q.number)) return std::nullopt;
  q.unit = trim(std::string(at, t.data() + t.size()));
  return q;
}

template <std::size_t N>
double in_base_unit(const std::string& text, const char* what, const Unit (&units)[N], const char* example, bool bare) {
  const auto fail = [&](const std::string& why) {
    throw fsdp::ConfigError(fmt::format("\"{}\" is not {}: {}; write for instance {}", text, what, why, example));
  };
  const auto q = read_quantity(text);
  if (!q) fail("no number");
  if (q->number < 0) fail("negative");
  if (q->unit.empty() && (bare || q->number == 0)) return q->number;
  if (q->unit.empty()) fail("no unit");
  for (const Unit& u : units) {
    if (q->unit != u.name) continue;
    if (q->number * u.factor > kLargest) fail("too large");
    return q->number * u.factor;
  }
  std::vector<std::string> names;
  for (const Unit& u : units) names.emplace_back(u.name);
  fail(fmt::format("unknown unit \"{}\", not one of {}", q->unit, fmt::join(names, " ")));
  return 0;
}

struct WholeUnit {
  const char* name;
  std::int64_t factor;
};
template <std::size_t N>
std::string exact(std::int64_t n, const WholeUnit (&units)[N]) {
  for (const WholeUnit& u : units) {
    if (n != 0 && n % u.factor == 0) return fmt::format("{}{}", n / u.factor, u.name);
  }
  return fmt::format("{}{}", n, units[N - 1].name);
}

}  // namespace

fsdp::Bytes parse_bytes(const std::string& text) {
  return std::llround(in_base_unit(text, "a size", kSizes, "64MiB", true));
}

fsdp::Nanos parse_nanos(const std::string& text) {
  return std::llround(in_base_unit(text, "a time", kTimes, "50us", false));
}

double parse_bytes_per_second(const std::string& text) {
  const double rate = in_base_unit(text, "a rate", kRates, "10GB/s or 100Gbit/s", false);
  if (!(rate > 0)) {
    throw fsdp::ConfigError(fmt::format("\"{}\" is not a rate: it must be above 0; write for instance 10GB/s", text));
  }
  return rate;
}

double parse_percent(const std::string& text) {
  const auto q = read_quantity(text);
  if (!q || q->unit != "%" || q->number < 0) {
    throw fsdp::ConfigError(fmt::format("\"{}\" is not a percentage; write for instance 2%", text));
  }
  return q->number / 100;
}

std::string exact_bytes(fsdp::Bytes n) {
  static constexpr WholeUnit kUnits[] = {{"GiB", 1 << 30},  {"MiB", 1 << 20}, {"GB", 1'000'000'000},
                                         {"MB", 1'000'000}, {"KiB", 1 << 10}, {"KB", 1000},
                                         {"B", 1}};
  return exact(n, kUnits);
}

std::string exact_nanos(fsdp::Nanos t) {
  static constexpr WholeUnit kUnits[] = {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1000}, {"ns", 1}};
  return exact(t, kUnits);
}

std::string exact_rate(double bytes_per_second) {
  for (const Unit& u : {kRates[3], kRates[2], kRates[1]}) {
    if (bytes_per_second >= u.factor) return fmt::format("{}{}", bytes_per_second / u.factor, u.name);
  }
  return fmt::format("{}B/s", bytes_per_second);
}

std::string format_bytes(fsdp::Bytes n) { return fsdp::readable_bytes(n); }

std::string format_nanos(fsdp::Nanos t) {
  if (std::llabs(t) < 1000) return fmt::format("{} ns", t);
  double value = static_cast<double>(t);
  const char* unit = "ns";
  for (const char* next : {"us", "ms", "s"}) {
    if (std::fabs(value) < 999.995) break;
    value /= 1000;
    unit = next;
  }
  return fmt::format("{:.2f} {}", value, unit);
}

std::string nearest(const std::string& text, const std::vector<std::string>& candidates, std::size_t n) {
  return fsdp::nearest_names(text, candidates, n);
}

}  // namespace harness
