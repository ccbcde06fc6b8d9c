#include "harness/sweep/codec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "fsdp/core/errors.h"
#include "harness/cost/hardware.h"
#include "harness/sweep/text.h"

namespace harness::codec {

void refuse(const std::string& text, const std::string& right) {
  throw fsdp::ConfigError(fmt::format("\"{}\" is not allowed; use {}", text, right));
}

std::size_t place_of(const std::string& text, const std::vector<std::string>& words) {
  const auto found = std::find(words.begin(), words.end(), text);
  if (found == words.end())
    refuse(text, fmt::format("{} (nearest: {})", fmt::join(words, ", "), nearest(text, words, 1)));
  return static_cast<std::size_t>(found - words.begin());
}

Codec<int> whole(int low, const std::string& also) {
  return {fmt::format("{}, {}, ...", low, low + 1),
          [=](const std::string& text, FileTexts&) {
            constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
            const auto n = whole_number(text);
            if (!n || *n < low || *n > kMost)
              refuse(text, fmt::format("{}a whole number from {} to {}", also, low, kMost));
            return static_cast<int>(*n);
          },
          [](const int& n) { return std::to_string(n); }};
}

Codec<std::uint64_t> seed() {
  return {"0, 1, ...",
          [](const std::string& text, FileTexts&) {
            std::uint64_t n = 0;
            const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), n);
            if (text.empty() || error != std::errc{} || at != text.data() + text.size())
              refuse(text, "a whole number from 0 to 2^64-1");
            return n;
          },
          [](const std::uint64_t& n) { return std::to_string(n); }};
}

Codec<fsdp::Bytes> size(const std::string& right) {
  return {"SIZE",
          [=](const std::string& text, FileTexts&) {
            const fsdp::Bytes n = parse_bytes(text);
            if (n <= 0) refuse(text, right);
            return n;
          },
          [](const fsdp::Bytes& n) { return exact_bytes(n); }};
}

Codec<fsdp::Nanos> duration() {
  return {"TIME",
          [](const std::string& text, FileTexts&) {
            const fsdp::Nanos t = parse_nanos(text);
            if (t <= 0) refuse(text, "a time above 0, for instance 60s");
            return t;
          },
          [](const fsdp::Nanos& t) { return exact_nanos(t); }};
}

Codec<double> norm() {
  return {"NORM",
          [](const std::string& text, FileTexts&) {
            double x = 0;
            const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), x);
            if (error != std::errc{} || at != text.data() + text.size() || !std::isfinite(x) || x <= 0)
              refuse(text, "none or a gradient norm above 0, for instance 1.0");
            return x;
          },
          [](const double& x) { return fmt::format("{}", x); }};
}

Codec<std::string> word() {
  return {"NAME",
          [](const std::string& text, FileTexts&) {
            if (text.empty()) refuse(text, "a name");
            return text;
          },
          [](const std::string& text) { return text; }};
}

Codec<NamedModel> model() {
  return {"preset or FILE.json",
          [](const std::string& text, FileTexts& files) {
            if (!is_model_file(text) || is_model_archive(text)) return named_model(text);
            return named_model(text, files.read(text, "the path of a config.json or .pt2, or a preset")->text);
          },
          [](const NamedModel& m) { return m.text; },
          [](const std::string& text) { return is_model_file(text) ? text : std::string(); }};
}

Codec<Overrides> overrides() {
  return {"NAME=VALUE,...", [](const std::string& text, FileTexts&) { return parse_overrides(text); },
          [](const Overrides& o) { return overrides_text(o); }};
}

Codec<WrapChoice> wrap() {
  return {"root, block, blocks:K, sublayer, size:MIN_PARAMS, class:NAME[,NAME...], plan:FILE.yaml",
          [](const std::string& text, FileTexts& files) {
            WrapChoice w{text, {}, {}};
            const std::string file = fsdp::wrap_plan_file(text);
            if (!file.empty()) w.file = files.read(file, "the path of a wrap plan in YAML");
            w.policy = fsdp::parse_wrap(text, w.file ? w.file->text : "");
            return w;
          },
          [](const WrapChoice& w) { return w.text; }, fsdp::wrap_plan_file};
}

Codec<BackwardPrefetchChoice> backward_prefetch() {
  using Mode = fsdp::BackwardPrefetch;
  return {"none, post, pre, pre:K",
          [](const std::string& text, FileTexts&) -> BackwardPrefetchChoice {
            if (text == "none") return {Mode::kNone, 1};
            if (text == "post") return {Mode::kPost, 1};
            const auto depth = text == "pre" ? 1 : whole_number(text.rfind("pre:", 0) == 0 ? text.substr(4) : "");
            if (!depth || *depth < 1 || *depth > 1 << 20)
              refuse(text, "none, post, pre, or pre:K with K units ahead, for instance pre:2");
            return {Mode::kPre, static_cast<int>(*depth)};
          },
          [](const BackwardPrefetchChoice& b) -> std::string {
            if (b.mode != Mode::kPre) return b.mode == Mode::kNone ? "none" : "post";
            return b.depth == 1 ? "pre" : fmt::format("pre:{}", b.depth);
          }};
}

Codec<fsdp::GateLimit> gate() {
  using Kind = fsdp::GateLimit::Kind;
  return {
      "none, UNITS, SIZE",
      [](const std::string& text, FileTexts&) -> fsdp::GateLimit {
        if (text == "none") return {Kind::kNone, 0};
        const char* right = "auto, none, a number of units from 1 (2), or a size (1GiB)";
        const auto units = whole_number(text);
        if (units && *units >= 1) return {Kind::kUnits, *units};
        if (units) refuse(text, right);
        try {
          if (const fsdp::Bytes n = parse_bytes(text); n > 0) return {Kind::kBytes, n};
        } catch (const fsdp::ConfigError&) {
        }
        refuse(text, right);
      },
      [](const fsdp::GateLimit& g) -> std::string {
        return g.kind == Kind::kNone ? "none" : g.kind == Kind::kUnits ? std::to_string(g.value) : exact_bytes(g.value);
      }};
}

Codec<std::shared_ptr<const FileText>> prefetch_order() {
  return {"recorded, FILE",
          [](const std::string& text, FileTexts& files) -> std::shared_ptr<const FileText> {
            if (text.empty()) refuse(text, "recorded, or a file with unit names");
            return text == "recorded" ? nullptr : files.read(text, "a file with unit names");
          },
          [](const std::shared_ptr<const FileText>& f) { return f ? f->path : "recorded"; },
          [](const std::string& text) { return text == "recorded" ? std::string() : text; }};
}

Codec<CtaLimits> nccl_ctas() {
  return {"auto, MAX, MIN-MAX",
          [](const std::string& text, FileTexts&) -> CtaLimits {
            if (text == "auto") return {};
            constexpr std::int64_t kMost = 64;  // of NCCL's channels
            const auto parts = split(text, '-');
            const auto first = whole_number(parts.front()), last = whole_number(parts.back());
            if (parts.size() > 2 || !first || !last || *first < 1 || *last < *first || *last > kMost)
              refuse(text, "auto, MAX or MIN-MAX up to 64, for instance 4-16");
            return {parts.size() == 2 ? static_cast<int>(*first) : 0, static_cast<int>(*last)};
          },
          [](const CtaLimits& l) -> std::string {
            if (l.max == 0) return "auto";
            return l.min == 0 ? std::to_string(l.max) : fmt::format("{}-{}", l.min, l.max);
          }};
}

Codec<fsdp::Wire> wire() {
  return {"LATENCY,BANDWIDTH",
          [](const std::string& text, FileTexts&) {
            const auto parts = split(text, ',');
            if (parts.size() != 2) refuse(text, "none, or LATENCY,BANDWIDTH, for instance 50us,10GB/s");
            const fsdp::Wire w{parse_nanos(parts[0]), parse_bytes_per_second(parts[1])};
            if (w.bytes_per_second < 1) refuse(text, "a bandwidth of at least 1B/s, for instance 50us,10GB/s");
            return w;
          },
          [](const fsdp::Wire& w) { return exact_nanos(w.latency) + "," + exact_rate(w.bytes_per_second); }};
}

Codec<HardwareChoice> hardware() {
  return {"none, preset, FILE.yaml",
          [](const std::string& text, FileTexts& files) -> HardwareChoice {
            if (text.empty()) refuse(text, "a name");
            if (text == "none") return {};
            if (!is_hardware_file(text)) return {text, std::make_shared<Hardware>(load_hardware(text)), nullptr};
            auto file = files.read(text, "a preset or a file that calibrate wrote");
            return {text, std::make_shared<Hardware>(parse_hardware(file->text, text)), file};
          },
          [](const HardwareChoice& h) { return h.costs ? h.name : "none"; },
          [](const std::string& text) { return is_hardware_file(text) ? text : std::string(); }};
}

Codec<ArrivalSkew> arrival_skew() {
  return {"RANK:TIME[,...]",
          [](const std::string& text, FileTexts&) {
            std::map<int, fsdp::Nanos> ranks;  // ascending
            for (const std::string& part : split(text, ',')) {
              const auto fields = split(part, ':');
              const auto rank = fields.size() == 2 ? whole_number(fields[0]) : std::nullopt;
              if (!rank || *rank < 0 || *rank > std::numeric_limits<int>::max() ||
                  !ranks.emplace(static_cast<int>(*rank), parse_nanos(fields[1])).second)
                refuse(text, "none, or RANK:TIME with each rank once, for instance 3:250us,17:90us");
            }
            return ArrivalSkew(ranks.begin(), ranks.end());
          },
          [](const ArrivalSkew& skew) {
            std::string out;
            for (const auto& [rank, late] : skew)
              out += fmt::format("{}{}:{}", out.empty() ? "" : ",", rank, exact_nanos(late));
            return out;
          }};
}

}  // namespace harness::codec
