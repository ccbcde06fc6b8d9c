// A file descriptor with an owner, and a stream socket that carries one document a line.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

// Movable; closes on destruction.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

// Of a peer that is one of ours: a result with its spans is a line.
inline constexpr std::size_t kLongestLine = std::size_t{1} << 30;

// Reading never blocks. Not thread-safe.
class LineSocket {
 public:
  LineSocket() = default;
  explicit LineSocket(Fd fd);  // of a connected stream socket
  int fd() const { return fd_.get(); }
  bool open() const { return fd_.open(); }
  void close() { fd_.reset(); }

  // A longer line closes the socket, so that a stranger costs no more memory than this.
  void limit(std::size_t longest_line) { longest_line_ = longest_line; }
  // From the next line on each one goes as its HMAC under `sending` and its number, then the text; one that does not
  // come so under `receiving` closes the socket.
  void seal(const std::string& sending, const std::string& receiving);

  // Waits for room at most `patience`; closes when a part of the line was sent by then: what follows would be taken for
  // its end. A peer that is gone is no error: receive() will tell.
  void send(const std::string& line, fsdp::Nanos patience = 1'000'000'000);
  // The whole lines that have arrived, as far as one turn reads. The socket is closed once the peer has closed it.
  std::vector<std::string> receive();
  // The next line, or nothing when the deadline (steady clock) passes or the peer closes first.
  bool next(std::string& line, fsdp::Nanos deadline);

 private:
  struct Seal {
    std::string key;  // empty: none
    std::uint64_t number = 0;
    std::string of(const std::string& text);
  };
  void read_what_is_there();
  void take_lines(std::size_t searched);
  bool take_waiting(std::string& line);
  bool unseal(std::string& line);

  Fd fd_;
  std::size_t longest_line_ = kLongestLine;
  Seal sending_, receiving_;
  std::string received_;             // an unfinished line
  std::deque<std::string> waiting_;  // whole ones, as they came
};

}  // namespace harness
