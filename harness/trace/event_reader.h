// EventReader: a Chrome / Kineto JSON trace as a stream of events. Memory is one window of text, however long the file.
//
// Takes {"traceEvents": [...], ...} with its keys in any order, and a bare [...]. Strict where it can be, tolerant
// where it must: raw control characters in strings, broken escapes, commas before a closing bracket and text after the
// end are let pass and counted; an event that is no JSON is given up and reading goes on at the next one; a cut file
// gives every event that is whole.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/core/types.h"
#include "harness/trace/byte_source.h"
#include "harness/trace/json_scan.h"

namespace harness {

enum class EventCategory : std::uint8_t {
  kOther,
  kKernel,
  kMemcpy,
  kMemset,
  kLaunch,      // CUDA runtime and driver calls
  kAnnotation,  // on the host
  kSync,        // pseudo-rows of waits: no device time
  kOperator,    // of the host, where they were asked for (keep_operators)
  kSpan,        // a slice of our own traces
  kUnknown,     // a slice of a category that nobody here knows, or of none
};

// Views into the window: valid during the callback only. Text fields are raw JSON: quotes off, escapes as they are.
struct RawEvent {
  char phase = 0;
  EventCategory category = EventCategory::kOther;
  std::string_view category_text, name, pid, tid, ts, dur, args;  // args: the object's text
  std::uint64_t offset = 0;                                       // of the event in the text
};

// What was wrong with the text. Offsets count bytes of the text, after decompression.
struct TextDefects {
  std::uint64_t lost_events = 0;  // given up; of a cut file, the one that was cut
  std::uint64_t tolerated = 0;
  bool truncated = false;
  std::string first;  // "byte 123: a raw control character in a string"; empty: none
  bool any() const { return lost_events > 0 || tolerated > 0 || truncated; }
};

class EventReader {
 public:
  explicit EventReader(const std::string& path, std::size_t window = 1 << 20);

  // Before read(): operators of the host are given too.
  void keep_operators() { operators_ = true; }

  // Reads the whole file. Events of category kOther (known, and of no use here) are skipped, unless they have one of
  // the names asked for. Throws fsdp::ConfigError if the text is no trace at all.
  void read(const std::function<void(const RawEvent&)>& on_event);

  // After read(): of the top-level members those that are asked for, and short others, as JSON text; one
  // above 1 MiB is left out.
  const std::map<std::string, std::string>& members() const { return members_; }
  const TextDefects& defects() const { return defects_; }
  std::uint64_t events() const { return events_; }       // whole events, of any kind
  std::uint64_t bytes() const { return base_ + size_; }  // of text
  bool compressed() const { return source_.compressed(); }

 private:
  bool fill();  // more text into the window, from pos_ on; false: none left
  char peek();  // the next byte that is not space, 0 at the end
  bool read_key(std::string& key);
  bool read_member_value(const std::string& key);
  bool keeps(const std::string& key, std::size_t size);
  bool skip_long_value();
  void read_events();
  bool read_event();
  // Says what a host operator or Python function of this name is here; kOther: nothing.
  EventCategory call_category(std::string_view name) const;
  Scan parse_event(JsonCursor& c, RawEvent& e) const;
  bool resynchronise(std::size_t from);
  void note(std::uint64_t offset, const std::string& what);
  void cut(const std::string& what);
  std::uint64_t offset() const { return base_ + pos_; }

  std::string path_;
  ByteSource source_;
  std::vector<char> window_;
  std::size_t pos_ = 0, size_ = 0;
  std::uint64_t base_ = 0;  // offset of window_[0] in the text
  bool ended_ = false;
  int endless_ = 0;
  bool operators_ = false;
  std::map<std::string, std::string> members_;
  std::size_t other_members_ = 0;  // bytes
  TextDefects defects_;
  std::uint64_t events_ = 0;
  const std::function<void(const RawEvent&)>* on_event_ = nullptr;
};

EventCategory category_of(std::string_view text);
// Operators that compute or copy; not those of autograd, which only hold others, nor the calls of collectives.
bool is_operator(std::string_view name);
// Whether a category that is not known is an accelerator's, by its name.
bool names_a_device(std::string_view category);

}  // namespace harness
