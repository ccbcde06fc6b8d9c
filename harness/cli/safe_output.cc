#include "harness/cli/safe_output.h"

#include <streambuf>
#include <string>

#include "fsdp/core/escape.h"
#include "fsdp/core/utf8.h"

namespace harness::cli {

class SafeOutput::Buffer : public std::streambuf {
 public:
  explicit Buffer(std::streambuf* to) : to_(to) {}
  std::streambuf* to() const { return to_; }

 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char one = traits_type::to_char_type(c);
    return xsputn(&one, 1) == 1 ? c : traits_type::eof();
  }
  // A code point may come in pieces: its beginning waits for the rest.
  std::streamsize xsputn(const char* text, std::streamsize n) override {
    waiting_.append(text, static_cast<std::size_t>(n));
    const std::size_t whole = waiting_.size() - fsdp::unfinished_bytes(waiting_);
    const bool written = write(std::string_view(waiting_).substr(0, whole));
    waiting_.erase(0, whole);
    return written ? n : 0;
  }
  int sync() override {
    const bool written = write(waiting_);
    waiting_.clear();
    return to_->pubsync() == 0 && written ? 0 : -1;
  }

 private:
  bool write(std::string_view text) {
    const std::string safe = fsdp::terminal_text(text);
    const auto size = static_cast<std::streamsize>(safe.size());
    return to_->sputn(safe.data(), size) == size;
  }
  std::streambuf* to_;
  std::string waiting_;
};

SafeOutput::SafeOutput(std::ostream& stream) : stream_(stream), buffer_(std::make_unique<Buffer>(stream.rdbuf())) {
  stream_.rdbuf(buffer_.get());
}

SafeOutput::~SafeOutput() {
  stream_.flush();
  const auto state = stream_.rdstate();
  stream_.rdbuf(buffer_->to());
  stream_.clear(state);
}

void write_control(std::ostream& stream, std::string_view text) {
  stream.flush();
  auto* safe = dynamic_cast<SafeOutput::Buffer*>(stream.rdbuf());
  std::streambuf* to = safe == nullptr ? stream.rdbuf() : safe->to();
  to->sputn(text.data(), static_cast<std::streamsize>(text.size()));
  stream.flush();
}

}  // namespace harness::cli
