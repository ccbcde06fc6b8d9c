#include "harness/trial/line_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "fsdp/core/clock.h"
#include "harness/trial/handshake.h"

namespace harness {
namespace {
constexpr int kTickMs = 50;
constexpr std::size_t kReadAtOnce = std::size_t{4} << 20;  // then others have their turn
}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}
int Fd::release() {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}
void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

LineSocket::LineSocket(Fd fd) : fd_(std::move(fd)) { fcntl(fd_.get(), F_SETFL, O_NONBLOCK); }

void LineSocket::seal(const std::string& sending, const std::string& receiving) {
  sending_ = {sending, 0};
  receiving_ = {receiving, 0};
}

std::string LineSocket::Seal::of(const std::string& text) {
  return keyed_hash(key, std::to_string(number++) + " " + text);
}

void LineSocket::send(const std::string& line, fsdp::Nanos patience) {
  const std::string text = (sending_.key.empty() ? line : sending_.of(line) + " " + line) + "\n";
  const fsdp::Nanos deadline = fsdp::steady_now() + patience;
  for (std::size_t at = 0; at < text.size() && open();) {
    const ssize_t n = ::send(fd_.get(), text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (n > 0) {
      at += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN && fsdp::steady_now() < deadline) {
      pollfd p{fd_.get(), POLLOUT, 0};
      poll(&p, 1, kTickMs);
    } else if (errno != EINTR) {
      // A sealed line that is left out breaks the numbering as a torn one breaks the next.
      if (errno == EAGAIN && (at > 0 || !sending_.key.empty())) close();
      return;
    }
  }
}

bool LineSocket::unseal(std::string& line) {
  if (receiving_.key.empty()) return true;
  const std::size_t space = line.find(' ');
  if (space == std::string::npos) return false;
  const std::string seal = line.substr(0, space);
  line.erase(0, space + 1);
  return same_secret_text(seal, receiving_.of(line));
}

// Whole lines leave received_ for waiting_; `searched`: bytes of it that hold no line's end.
void LineSocket::take_lines(std::size_t searched) {
  std::size_t begin = 0;
  for (std::size_t end; (end = received_.find('\n', std::max(begin, searched))) != std::string::npos; begin = end + 1) {
    if (end - begin > longest_line_) return close();
    waiting_.push_back(received_.substr(begin, end - begin));
  }
  received_.erase(0, begin);
  if (received_.size() > longest_line_) close();
}

void LineSocket::read_what_is_there() {
  std::array<char, 65536> buffer;
  const std::size_t room = std::min(buffer.size(), longest_line_ + 1);
  for (std::size_t read = 0; open() && read < kReadAtOnce; read += room) {
    const ssize_t n = recv(fd_.get(), buffer.data(), room, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {
      close();
      break;
    }
    const std::size_t searched = received_.size();
    received_.append(buffer.data(), static_cast<std::size_t>(n));
    take_lines(searched);
    if (room < buffer.size()) break;  // of a stranger: one piece a turn
  }
  if (!open()) received_ = {};
}

// False: none is left, or the next one was not sealed as it has to be.
bool LineSocket::take_waiting(std::string& line) {
  if (waiting_.empty()) return false;
  line = std::move(waiting_.front());
  waiting_.pop_front();
  if (unseal(line)) return true;
  waiting_ = {};
  close();
  return false;
}

std::vector<std::string> LineSocket::receive() {
  read_what_is_there();
  std::vector<std::string> lines;
  for (std::string line; take_waiting(line);) lines.push_back(std::move(line));
  return lines;
}

bool LineSocket::next(std::string& line, fsdp::Nanos deadline) {
  while (true) {
    if (waiting_.empty()) read_what_is_there();
    if (take_waiting(line)) return true;
    const fsdp::Nanos left = deadline - fsdp::steady_now();
    if (!open() || left <= 0) return false;
    pollfd p{fd_.get(), POLLIN, 0};
    poll(&p, 1, static_cast<int>(std::min<fsdp::Nanos>(left / 1'000'000 + 1, kTickMs)));
  }
}

}  // namespace harness
