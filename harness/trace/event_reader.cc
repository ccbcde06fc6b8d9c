#include "harness/trace/event_reader.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

#include "fsdp/core/errors.h"
#include "harness/analysis/annotations.h"

namespace harness {
namespace {

constexpr std::size_t kLargestEvent = 4 << 20;
constexpr int kMostEndless = 100;  // events without an end, each of which costs a scan of the window
constexpr std::size_t kLargestMember = 1 << 20;

constexpr std::size_t kOtherMembers = 1 << 16;  // bytes of members kept that nothing asks for

bool is_asked_for(const std::string& member) {
  return member == "schema" || member == "metadata" || member == "distributedInfo" || member == "baseTimeNanoseconds";
}

// Keys that an event may begin with; an object inside an event's arguments begins otherwise or follows a colon.
bool begins_event(const char* p, const char* end) {
  if (p >= end || *p != '{') return false;
  ++p;
  while (p < end && static_cast<unsigned char>(*p) <= ' ') ++p;
  for (std::string_view key : {"\"ph\"", "\"name\"", "\"cat\"", "\"pid\"", "\"tid\"", "\"ts\"", "\"id\"", "\"args\""}) {
    if (static_cast<std::size_t>(end - p) >= key.size() && std::memcmp(p, key.data(), key.size()) == 0) return true;
  }
  return false;
}

// Of host operators and Python functions the calls of collectives and of modules matter.
bool is_host_call(std::string_view t) { return t == "cpu_op" || t == "Operator" || t == "python_function"; }

EventCategory foreign_category(std::string_view t) {
  switch (t.size()) {
    case 6:
      if (t == "kernel" || t == "Kernel") return EventCategory::kKernel;
      if (t == "Memcpy") return EventCategory::kMemcpy;
      if (t == "Memset") return EventCategory::kMemset;
      break;
    case 7:
      if (t == "Runtime") return EventCategory::kLaunch;
      break;
    case 9:
      if (t == "cuda_sync") return EventCategory::kSync;
      break;
    case 10:
      if (t == "gpu_memcpy") return EventCategory::kMemcpy;
      if (t == "gpu_memset") return EventCategory::kMemset;
      break;
    case 15:
      if (t == "user_annotation") return EventCategory::kAnnotation;
      break;
  }
  // cuda_runtime, cuda_driver, hip_runtime, xpu_runtime, mtia_runtime, privateuse1_driver, ...
  return t.ends_with("_runtime") || t.ends_with("_driver") ? EventCategory::kLaunch : EventCategory::kOther;
}

// What torch.profiler writes beside that, none of it device work: operators, Python, flows, instants, bookkeeping.
bool is_known(std::string_view t) {
  static constexpr std::string_view kKnown[] = {"cpu_op",
                                                "Operator",
                                                "python_function",
                                                "ac2g",
                                                "async_cpu_to_gpu",
                                                "fwdbwd",
                                                "async_gpu",
                                                "overhead",
                                                "gpu_user_annotation",
                                                "cuda_event",
                                                "cpu_instant_event",
                                                "Trace",
                                                "__metadata",
                                                "Python",
                                                "CPU",
                                                "input_pipeline",
                                                "ProfilerStep",
                                                "collective_comm",
                                                "cuda_profiler_range"};
  return is_host_call(t) || std::find(std::begin(kKnown), std::end(kKnown), t) != std::end(kKnown);
}

// Categories of our own traces: the kinds of Span.
const auto kSpanKinds = [] {
  std::array<std::string_view, static_cast<std::size_t>(fsdp::SpanKind::kStep) + 1> names;
  for (std::size_t k = 0; k < names.size(); ++k) names[k] = fsdp::name_of(static_cast<fsdp::SpanKind>(k));
  return names;
}();
}  // namespace

EventCategory category_of(std::string_view t) {
  if (const EventCategory c = foreign_category(t); c != EventCategory::kOther) return c;
  if (is_known(t)) return EventCategory::kOther;
  const bool own = std::find(kSpanKinds.begin(), kSpanKinds.end(), t) != kSpanKinds.end();
  return own ? EventCategory::kSpan : EventCategory::kUnknown;
}

bool is_operator(std::string_view name) {
  if (name.find("::") == std::string_view::npos || name.find('(') != std::string_view::npos) return false;
  for (const std::string_view other : {"autograd::", "torch::autograd::", "c10d::", "profiler::"}) {
    if (name.starts_with(other)) return false;
  }
  return true;
}

EventCategory EventReader::call_category(std::string_view name) const {
  if (name.starts_with("c10d::") || name.starts_with(kModuleCall)) return EventCategory::kAnnotation;
  return operators_ && is_operator(name) ? EventCategory::kOperator : EventCategory::kOther;
}

bool names_a_device(std::string_view category) {
  std::string low(category.substr(0, 64));
  std::transform(low.begin(), low.end(), low.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto has = [&](std::string_view part) { return low.find(part) != std::string::npos; };
  for (std::string_view host : {"cpu", "host", "python", "runtime", "driver", "annotation"}) {
    if (has(host)) return false;
  }
  for (std::string_view part : {"gpu", "xpu", "npu", "hpu", "tpu", "mlu", "mtia", "musa", "privateuse", "accel",
                                "device", "kernel", "cuda", "hip", "ascend", "gaudi", "neuron", "memcpy", "memset"}) {
    if (has(part)) return true;
  }
  return false;
}

EventReader::EventReader(const std::string& path, std::size_t window)
    : path_(path), source_(path), window_(std::max<std::size_t>(window, 4096) + kScanPadding, '\0') {}

// Keeps [pos_, size_), moves it to the front, doubles the window when it is full.
bool EventReader::fill() {
  if (ended_) return false;
  if (pos_ > 0) {
    std::memmove(window_.data(), window_.data() + pos_, size_ - pos_);
    base_ += pos_;
    size_ -= pos_;
    pos_ = 0;
  }
  std::size_t room = window_.size() - kScanPadding - size_;
  if (room == 0) {
    if (window_.size() > kLargestEvent) return false;
    window_.resize(2 * window_.size(), '\0');
    room = window_.size() - kScanPadding - size_;
  }
  const std::size_t got = source_.read(window_.data() + size_, room);
  size_ += got;
  std::memset(window_.data() + size_, 0, kScanPadding);
  if (got < room) ended_ = true;
  return got > 0;
}

char EventReader::peek() {
  for (;;) {
    while (pos_ < size_ && static_cast<unsigned char>(window_[pos_]) <= ' ') ++pos_;
    if (pos_ < size_) return window_[pos_];
    if (!fill()) return 0;
  }
}

void EventReader::note(std::uint64_t offset, const std::string& what) {
  if (defects_.first.empty()) defects_.first = "byte " + std::to_string(offset) + ": " + what;
}

void EventReader::cut(const std::string& what) {
  defects_.truncated = true;
  note(base_ + size_, source_.damage().empty() ? what : source_.damage());
}

void EventReader::read(const std::function<void(const RawEvent&)>& on_event) {
  on_event_ = &on_event;
  fill();
  if (size_ >= 3 && std::memcmp(window_.data(), "\xEF\xBB\xBF", 3) == 0) pos_ = 3;
  const char first = peek();
  if (first == '[') {
    ++pos_;
    read_events();
    if (!source_.damage().empty()) cut("");
    return;
  }
  if (first != '{') {
    const std::string why = !source_.damage().empty() ? source_.damage()
                            : first == 0              ? "the file is empty"
                                                      : "byte " + std::to_string(offset()) + " begins no JSON object";
    throw fsdp::ConfigError("[" + path_ + "] is no trace: " + why + "; give a Chrome or Kineto JSON trace");
  }
  ++pos_;
  bool has_events = false;
  for (;;) {
    const char c = peek();
    if (c == 0) {
      cut("the text ends inside the trace");
      break;
    }
    if (c == '}') {
      ++pos_;
      if (peek() != 0) note(offset(), "text after the end of the trace"), ++defects_.tolerated;
      break;
    }
    if (c == ',') {
      ++pos_;
      continue;
    }
    std::string key;
    if (!read_key(key)) break;
    if (key == "traceEvents" && peek() == '[') {
      ++pos_;
      has_events = true;
      read_events();
    } else if (!read_member_value(key)) {
      break;
    }
  }
  if (!source_.damage().empty() && !defects_.truncated) cut("");
  if (!has_events) {
    throw fsdp::ConfigError(
        "[" + path_ + "] is no trace: " + (defects_.first.empty() ? "it has no \"traceEvents\"" : defects_.first) +
        "; give a Chrome or Kineto JSON trace");
  }
}

// A member's name and its colon. False: the rest cannot be read; the reason is noted.
bool EventReader::read_key(std::string& key) {
  for (;;) {
    JsonCursor c{window_.data() + pos_, window_.data() + size_};
    std::string_view text;
    Scan r = *c.p == '"' ? scan_string(c, text) : Scan::kBad;
    if (r == Scan::kOk) {
      skip_space(c);
      r = !c.more() ? Scan::kShort : (*c.p == ':' ? Scan::kOk : Scan::kBad);
    }
    if (r == Scan::kOk) {
      unescape(text, key);
      pos_ = static_cast<std::size_t>(c.p + 1 - window_.data());
      return true;
    }
    if (r == Scan::kShort && fill()) continue;
    if (r == Scan::kShort) {
      cut("the text ends inside a key");
    } else {
      ++defects_.tolerated;
      defects_.truncated = true;
      note(base_ + static_cast<std::uint64_t>(c.p - window_.data()),
           "expected a key and a colon; the rest is not read");
    }
    return false;
  }
}

bool EventReader::keeps(const std::string& key, std::size_t size) {
  if (is_asked_for(key)) return size <= kLargestMember;
  other_members_ += key.size() + size;
  return other_members_ <= kOtherMembers;
}

bool EventReader::read_member_value(const std::string& key) {
  if (peek() == 0) {
    cut("the text ends inside member \"" + key + "\"");
    return false;
  }
  for (;;) {
    JsonCursor c{window_.data() + pos_, window_.data() + size_};
    std::string_view text;
    const Scan r = scan_value(c, text);
    if (r == Scan::kOk) {
      if (keeps(key, text.size())) members_[key] = std::string(text);
      pos_ = static_cast<std::size_t>(c.p - window_.data());
      return true;
    }
    if (r == Scan::kBad) {
      ++defects_.tolerated;
      note(base_ + static_cast<std::uint64_t>(c.p - window_.data()), "member \"" + key + "\" is no JSON");
      return skip_long_value();
    }
    if (size_ - pos_ > kLargestMember) return skip_long_value();
    if (!fill()) {
      cut("the text ends inside member \"" + key + "\"");
      return false;
    }
  }
}

// Passes over a value that need not fit the window. Knows only brackets and strings.
bool EventReader::skip_long_value() {
  int depth = 0;
  bool in_string = false;
  for (;; ++pos_) {
    if (pos_ >= size_ && !fill()) {
      cut("the text ends inside a value");
      return false;
    }
    const char ch = window_[pos_];
    if (in_string) {
      if (ch == '\\') {
        ++pos_;
        if (pos_ >= size_ && !fill()) continue;
      } else if (ch == '"') {
        in_string = false;
      }
    } else if (ch == '"') {
      in_string = true;
    } else if (ch == '{' || ch == '[') {
      ++depth;
    } else if (ch == '}' || ch == ']') {
      if (depth == 0) return true;  // the end of what is around the value
      if (--depth == 0) {
        ++pos_;
        return true;
      }
    } else if (ch == ',' && depth == 0) {
      return true;
    }
  }
}

void EventReader::read_events() {
  bool after_comma = false;
  for (;;) {
    const char c = peek();
    if (c == 0) return cut("the text ends inside the list of events");
    if (c == ']') {
      if (after_comma) note(offset(), "a comma before the closing bracket"), ++defects_.tolerated;
      ++pos_;
      return;
    }
    if (c == ',') {
      after_comma = true;
      ++pos_;
      continue;
    }
    after_comma = false;
    if (c == '{' && read_event()) continue;
    if (c != '{') note(offset(), "expected an event");
    ++defects_.lost_events;
    if (endless_ > kMostEndless) return cut("too many events without an end");
    if (!resynchronise(pos_ + 1)) return cut("no whole event follows");
  }
}

// The event at pos_. False: it is no JSON, or it never ends; where and why is noted.
bool EventReader::read_event() {
  for (;;) {
    JsonCursor cursor{window_.data() + pos_, window_.data() + size_};
    RawEvent event;
    event.offset = offset();
    const Scan r = parse_event(cursor, event);
    if (r == Scan::kOk) {
      if (cursor.tolerated > 0) {
        defects_.tolerated += cursor.tolerated;
        note(base_ + static_cast<std::uint64_t>(cursor.first_tolerated - window_.data()),
             "a raw control character in a string");
      }
      ++events_;
      pos_ = static_cast<std::size_t>(cursor.p - window_.data());
      if (event.category != EventCategory::kOther) (*on_event_)(event);
      return true;
    }
    if (r == Scan::kShort && fill()) continue;
    const std::uint64_t at = base_ + static_cast<std::uint64_t>(cursor.p - window_.data());
    if (r == Scan::kBad) {
      note(at, "an event that is no JSON");
    } else if (!ended_) {
      ++endless_;
      note(offset(), "an event longer than 4 MiB");
    } else {
      ++endless_;
      note(offset(), source_.damage().empty() ? "an event that does not end" : source_.damage());
    }
    return false;
  }
}

// Moves to the next place, at or after `from`, that looks like the begin of an event. False: there is none, all is
// read.
bool EventReader::resynchronise(std::size_t from) {
  pos_ = std::min(from, size_);
  char before_window = ',';  // the last byte before window_[0] that is not space
  auto byte_before = [&](std::size_t i) {
    while (i > 0 && static_cast<unsigned char>(window_[i - 1]) <= ' ') --i;
    return i > 0 ? window_[i - 1] : before_window;
  };
  for (;;) {
    const void* hit = std::memchr(window_.data() + pos_, '{', size_ - pos_);
    pos_ = hit == nullptr ? size_ : static_cast<std::size_t>(static_cast<const char*>(hit) - window_.data());
    const char before = byte_before(pos_);
    if (size_ - pos_ < kScanPadding && fill()) {
      before_window = before;
      continue;
    }
    if (pos_ >= size_) return false;
    if (before != ':' && begins_event(window_.data() + pos_, window_.data() + size_)) return true;
    ++pos_;
  }
}

Scan EventReader::parse_event(JsonCursor& c, RawEvent& e) const {
  ++c.p;  // the brace
  bool host_call = false;
  for (;;) {
    skip_space(c);
    if (!c.more()) return Scan::kShort;
    if (*c.p == '}') {
      ++c.p;
      if (e.category_text.empty() && e.phase == 'X') e.category = EventCategory::kUnknown;
      return Scan::kOk;
    }
    if (*c.p == ',') {
      ++c.p;
      continue;
    }
    if (*c.p != '"') return Scan::kBad;
    std::string_view key, value;
    if (const Scan r = scan_string(c, key); r != Scan::kOk) return r;
    skip_space(c);
    if (!c.more()) return Scan::kShort;
    if (*c.p != ':') return Scan::kBad;
    ++c.p;
    skip_space(c);
    if (const Scan r = scan_value(c, value); r != Scan::kOk) return r;
    switch (key.size()) {
      case 2:
        if (key == "ph") {
          e.phase = unquoted(value).empty() ? '\0' : unquoted(value)[0];
          if (e.phase == 's' || e.phase == 'f' || e.phase == 't' || e.phase == 'M' || e.phase == 'C') {
            e.category = EventCategory::kOther;
            return skip_to_close(c, 1);
          }
        } else if (key == "ts") {
          e.ts = value;
        }
        break;
      case 3:
        if (key == "cat") {
          e.category_text = unquoted(value);
          e.category = category_of(e.category_text);
          host_call = e.category == EventCategory::kOther && is_host_call(e.category_text);
          if (host_call && e.name.data() != nullptr) {
            e.category = call_category(e.name);
            if (e.category == EventCategory::kOther) return skip_to_close(c, 1);
          } else if (e.category == EventCategory::kOther && !host_call) {
            return skip_to_close(c, 1);
          }
        } else if (key == "pid") {
          e.pid = unquoted(value);
        } else if (key == "tid") {
          e.tid = unquoted(value);
        } else if (key == "dur") {
          e.dur = value;
        }
        break;
      case 4:
        if (key == "name") {
          e.name = unquoted(value);
          if (host_call) {
            e.category = call_category(e.name);
            if (e.category == EventCategory::kOther) return skip_to_close(c, 1);
          }
        } else if (key == "args") {
          e.args = value;
        }
        break;
      default:
        break;
    }
  }
}

}  // namespace harness
