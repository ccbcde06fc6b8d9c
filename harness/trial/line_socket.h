// A file descriptor with an owner, and a stream socket that carries one document a line.
#pragma once
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

// Reading never blocks. Not thread-safe.
class LineSocket {
 public:
  LineSocket() = default;
  explicit LineSocket(Fd fd);  // of a connected stream socket
  int fd() const { return fd_.get(); }
  bool open() const { return fd_.open(); }
  void close() { fd_.reset(); }

  // Waits for room at most `patience`; closes when a part of the line was sent by then: what follows would be taken for
  // its end. A peer that is gone is no error: receive() will tell.
  void send(const std::string& line, fsdp::Nanos patience = 1'000'000'000);
  // The whole lines that have arrived. The socket is closed once the peer has closed it.
  std::vector<std::string> receive();
  // The next line, or nothing when the deadline (steady clock) passes or the peer closes first.
  bool next(std::string& line, fsdp::Nanos deadline);

 private:
  Fd fd_;
  std::string received_;              // an unfinished line
  std::vector<std::string> waiting_;  // lines that came together with one that next() has returned
};

}  // namespace harness
