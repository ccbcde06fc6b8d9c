#include "harness/trial/rank_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "fsdp/core/errors.h"

namespace harness {

RankLink::RankLink(int fd) : fd_(fd) {}

RankLink::~RankLink() {
  shutdown(fd_, SHUT_RDWR);
  if (thread_.joinable()) thread_.join();
  close(fd_);
}

bool RankLink::read_line(std::string& line) {
  std::size_t end;
  while ((end = received_.find('\n')) == std::string::npos) {
    char buffer[4096];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    received_.append(buffer, static_cast<std::size_t>(n));
  }
  line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return true;
}

std::string RankLink::read_first_line() {
  std::string line;
  if (!read_line(line)) throw fsdp::CommError("[rank] the launcher closed its socket before it sent a job");
  return line;
}

void RankLink::start(Handlers handlers) {
  thread_ = std::thread([this, handlers = std::move(handlers)] { serve(handlers); });
}

void RankLink::report(const Handlers& handlers) {
  if (handlers.communicators) send_line(at_line(handlers.communicators()));
  RankEvent e;
  e.kind = RankEvent::Kind::kWhere;
  e.where = handlers.where();
  send(e);
}

void RankLink::serve(const Handlers& handlers) {
  std::string line;
  while (read_line(line)) {
    try {
      if (handlers.other && handlers.other(line)) continue;
      const RankCommand command = rank_command_from_json(line);
      if (command == RankCommand::kReport) {
        report(handlers);
        continue;
      }
      const std::lock_guard lock(mutex_);
      commands_.push_back(command);
    } catch (const fsdp::Error&) {
      break;  // a launcher of another version: as good as gone
    }
    arrived_.notify_one();
  }
  handlers.on_closed();
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  arrived_.notify_one();
}

RankCommand RankLink::next() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [&] { return !commands_.empty() || closed_; });
  if (commands_.empty()) throw fsdp::CommError("[rank] the launcher has closed its socket");
  const RankCommand command = commands_.front();
  commands_.pop_front();
  return command;
}

void RankLink::send_line(const std::string& line) {
  const std::string text = line + "\n";
  const std::lock_guard lock(send_mutex_);
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::send(fd_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    at += static_cast<std::size_t>(n);
  }
}

}  // namespace harness
