#include "harness/sweep/setting_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "fsdp/core/errors.h"
#include "fsdp/plan/wrap_policy.h"
#include "harness/sweep/quantities.h"
#include "harness/sweep/text.h"
#include "harness/workload/model_settings.h"

namespace harness::checks {
namespace {

[[noreturn]] void fail(const std::string& text, const std::string& right) {
  throw fsdp::ConfigError(fmt::format("\"{}\" is not allowed; use {}", text, right));
}

std::string one_of(const std::string& text, const std::vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), text) != words.end()) return text;
  fail(text, fmt::format("{} (nearest: {})", fmt::join(words, ", "), nearest(text, words, 1)));
}

std::string in_range(const std::string& text, std::int64_t low, const std::string& also = "") {
  const auto n = whole_number(text);
  if (n && *n >= low && *n <= std::numeric_limits<std::int32_t>::max()) return std::to_string(*n);
  fail(text, fmt::format("{}a whole number from {} to {}", also, low, std::numeric_limits<std::int32_t>::max()));
}

// "pre:2" -> "pre" and "2"; without a colon the second is empty.
std::pair<std::string, std::string> head_and_rest(const std::string& text) {
  const auto colon = text.find(':');
  if (colon == std::string::npos) return {text, ""};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

// Settings that a wrap plan file may give unit by unit have their grammar in the plan room.
std::string unit_option(const char* key, const std::string& text) {
  fsdp::UnitOptions ignored;
  try {
    fsdp::apply_unit_option(ignored, key, text);
  } catch (const fsdp::ConfigError& e) {
    const std::string what = e.what(), head = std::string(key) + ": ";
    throw fsdp::ConfigError(what.rfind(head, 0) == 0 ? what.substr(head.size()) : what);
  }
  return text;
}

}  // namespace

std::string device(const std::string& text) { return one_of(text, {"cpu", "cuda", "virtual"}); }

std::string model(const std::string& text) { return model_text(text); }

std::string overrides(const std::string& text) {
  if (text.empty() || text == "none") return "";
  static const std::vector<std::string> kOrder = {"layers", "dim", "heads", "kv_heads", "ffn", "vocab", "tied"};
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& piece : split(text, ',')) {
    const auto equals = piece.find('=');
    const std::string key = trim(piece.substr(0, equals));
    if (equals == std::string::npos || key.empty() || trim(piece.substr(equals + 1)).empty()) {
      throw fsdp::ConfigError(
          fmt::format("\"{}\" in \"{}\" is not NAME=VALUE; write for instance layers=8,dim=512", piece, text));
    }
    for (const auto& [earlier, value] : pairs) {
      if (earlier == key)
        throw fsdp::ConfigError(fmt::format("\"{}\" is given twice in \"{}\"; give it once", key, text));
    }
    pairs.emplace_back(key, trim(piece.substr(equals + 1)));
  }
  const auto place = [](const std::string& key) {
    return std::find(kOrder.begin(), kOrder.end(), key) - kOrder.begin();
  };
  std::sort(pairs.begin(), pairs.end(), [&](const auto& a, const auto& b) {
    return place(a.first) != place(b.first) ? place(a.first) < place(b.first) : a.first < b.first;
  });
  std::string out;
  for (const auto& [key, value] : pairs) out += (out.empty() ? "" : ",") + key + "=" + value;
  return out;
}

std::string positive(const std::string& text) { return in_range(text, 1); }
std::string natural(const std::string& text) { return in_range(text, 0); }

std::string seed(const std::string& text) {
  std::uint64_t n = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (text.empty() || error != std::errc{} || at != text.data() + text.size())
    fail(text, "a whole number from 0 to 2^64-1");
  return std::to_string(n);
}

std::string seq(const std::string& text) {
  return text == "model" ? text : in_range(text, 1, "model (the model's own length) or ");
}
std::string ranks_per_node(const std::string& text) { return text == "auto" ? text : in_range(text, 1, "auto or "); }
std::string accumulate_sync(const std::string& text) { return one_of(text, {"every", "last"}); }

std::string wrap(const std::string& text) {
  fsdp::parse_wrap(text, {});
  return text;
}

std::string strategy(const std::string& text) { return unit_option("strategy", text); }
std::string reshard(const std::string& text) { return unit_option("reshard_after_forward", lower(text)); }
std::string param_dtype(const std::string& text) { return unit_option("param_dtype", text); }
std::string reduce_dtype(const std::string& text) { return unit_option("reduce_dtype", text); }
std::string output_dtype(const std::string& text) { return unit_option("output_dtype", text); }
std::string buffer_dtype(const std::string& text) { return one_of(text, {"fp32", "bf16"}); }

std::string backward_prefetch(const std::string& text) {
  const auto [head, depth] = head_and_rest(text);
  if (text == "none" || text == "post" || text == "pre") return text;
  const auto n = whole_number(depth);
  if (head != "pre" || !n || *n < 1 || *n > 1 << 20)
    fail(text, "none, post, pre, or pre:K with K units ahead, for instance pre:2");
  return *n == 1 ? "pre" : fmt::format("pre:{}", *n);
}

std::string max_inflight(const std::string& text) {
  if (text == "auto" || text == "none") return text;
  const auto n = whole_number(text);
  if (n && *n >= 1) return std::to_string(*n);
  const char* right = "auto, none, a number of units from 1 (2), or a size (1GiB)";
  if (n) fail(text, right);
  try {
    const fsdp::Bytes size = parse_bytes(text);
    if (size > 0) return exact_bytes(size);
  } catch (const fsdp::ConfigError&) {
  }
  fail(text, right);
}

std::string communicator(const std::string& text) { return one_of(text, {"shared", "own"}); }
std::string layout(const std::string& text) { return one_of(text, {"flat", "per_parameter"}); }
std::string checkpoint(const std::string& text) { return one_of(text, {"none", "block"}); }
std::string optimizer(const std::string& text) { return one_of(text, {"adamw", "sgd"}); }

std::string clip(const std::string& text) {
  if (text == "none") return text;
  double norm = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), norm);
  if (error != std::errc{} || at != text.data() + text.size() || !std::isfinite(norm) || norm <= 0) {
    fail(text, "none or a gradient norm above 0, for instance 1.0");
  }
  return fmt::format("{}", norm);
}

std::string nccl_ctas(const std::string& text) {
  if (text == "auto") return text;
  constexpr std::int64_t kMost = 64;  // of NCCL's channels
  const auto parts = split(text, '-');
  const auto first = whole_number(parts.front()), last = whole_number(parts.back());
  if (parts.size() > 2 || !first || !last || *first < 1 || *last < *first || *last > kMost)
    fail(text, "auto, MAX or MIN-MAX up to 64, for instance 4-16");
  return parts.size() == 2 ? std::to_string(*first) + "-" + std::to_string(*last) : std::to_string(*last);
}
std::string nccl_buffers(const std::string& text) { return one_of(text, {"plain", "registered"}); }

std::string collectives(const std::string& text) { return one_of(text, {"auto", "local", "gloo", "nccl"}); }

std::string wire(const std::string& text) {
  if (text == "none") return text;
  const auto parts = split(text, ',');
  if (parts.size() != 2) fail(text, "none, or LATENCY,BANDWIDTH, for instance 50us,10GB/s");
  return exact_nanos(parse_nanos(parts[0])) + "," + exact_rate(parse_bytes_per_second(parts[1]));
}

std::string memory_budget(const std::string& text) {
  if (text == "none") return text;
  const fsdp::Bytes size = parse_bytes(text);
  if (size <= 0) fail(text, "none, or a size above 0, for instance 400MiB");
  return exact_bytes(size);
}

std::string arrival_skew(const std::string& text) {
  if (text == "none") return text;
  std::map<std::int64_t, fsdp::Nanos> ranks;
  for (const std::string& part : split(text, ',')) {
    const auto fields = split(part, ':');
    const auto rank = fields.size() == 2 ? whole_number(fields[0]) : std::nullopt;
    if (!rank || !ranks.emplace(*rank, parse_nanos(fields[1])).second)
      fail(text, "none, or RANK:TIME with each rank once, for instance 3:250us,17:90us");
  }
  std::string out;
  for (const auto& [rank, late] : ranks) out += fmt::format("{}{}:{}", out.empty() ? "" : ",", rank, exact_nanos(late));
  return out;
}

std::string step_timeout(const std::string& text) {
  const fsdp::Nanos t = parse_nanos(text);
  if (t <= 0) fail(text, "a time above 0, for instance 60s");
  return exact_nanos(t);
}

std::string word(const std::string& text) {
  if (text.empty()) fail(text, "a name");
  return text;
}

}  // namespace harness::checks
