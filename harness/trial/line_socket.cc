#include "harness/trial/line_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fsdp/core/clock.h"

namespace harness {
namespace {
constexpr int kTickMs = 50;
}

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

void LineSocket::send(const std::string& line, fsdp::Nanos patience) {
  const std::string text = line + "\n";
  const fsdp::Nanos deadline = fsdp::steady_now() + patience;
  for (std::size_t at = 0; at < text.size() && open();) {
    const ssize_t n = ::send(fd_.get(), text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (n > 0) {
      at += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN && fsdp::steady_now() < deadline) {
      pollfd p{fd_.get(), POLLOUT, 0};
      poll(&p, 1, kTickMs);
    } else if (errno != EINTR) {
      if (errno == EAGAIN && at > 0) close();
      return;
    }
  }
}

std::vector<std::string> LineSocket::receive() {
  std::vector<std::string> lines = std::exchange(waiting_, {});
  char buffer[65536];
  while (open()) {
    const ssize_t n = recv(fd_.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {
      close();
      break;
    }
    std::size_t searched = received_.size();
    received_.append(buffer, static_cast<std::size_t>(n));
    for (std::size_t end; (end = received_.find('\n', searched)) != std::string::npos; searched = 0) {
      lines.push_back(received_.substr(0, end));
      received_.erase(0, end + 1);
    }
  }
  return lines;
}

bool LineSocket::next(std::string& line, fsdp::Nanos deadline) {
  while (true) {
    std::vector<std::string> lines = receive();
    if (!lines.empty()) {
      line = std::move(lines.front());
      waiting_.assign(std::make_move_iterator(lines.begin() + 1), std::make_move_iterator(lines.end()));
      return true;
    }
    const fsdp::Nanos left = deadline - fsdp::steady_now();
    if (!open() || left <= 0) return false;
    pollfd p{fd_.get(), POLLIN, 0};
    poll(&p, 1, static_cast<int>(std::min<fsdp::Nanos>(left / 1'000'000 + 1, kTickMs)));
  }
}

}  // namespace harness
