// The one place where text leaves the program for a terminal: what acts there instead of being shown
// (fsdp/core/escape.h) is written as \u001b, bytes that are not UTF-8 as U+FFFD, whoever wrote them. JSON stays the
// same JSON.
#pragma once
#include <memory>
#include <ostream>
#include <string_view>

namespace harness::cli {

// Stands before a stream's buffer as long as it lives. One at a time for a stream.
class SafeOutput {
 public:
  explicit SafeOutput(std::ostream& stream);
  ~SafeOutput();
  SafeOutput(const SafeOutput&) = delete;
  SafeOutput& operator=(const SafeOutput&) = delete;

 private:
  class Buffer;
  friend void write_control(std::ostream& stream, std::string_view text);
  std::ostream& stream_;
  std::unique_ptr<Buffer> buffer_;
};

// For what the program itself wants a terminal to do: passes as it is, and flushes. REQUIRES: nothing foreign in
// `text`.
void write_control(std::ostream& stream, std::string_view text);

}  // namespace harness::cli
