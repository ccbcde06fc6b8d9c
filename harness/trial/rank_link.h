// RankLink: a rank's end of the control socket. A thread of its own reads it: it answers `report` at once, whatever the
// rank's main thread is stuck in, hands the other commands over, and notices when the launcher is gone.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "harness/trial/messages.h"

namespace harness {

class RankLink {
 public:
  // Takes the descriptor over.
  explicit RankLink(int fd);
  // Ends the thread; the socket is closed.
  ~RankLink();
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

  // The first line; blocks for it. Throws fsdp::CommError when the launcher goes without sending one. Before start().
  std::string read_first_line();
  // `where` is called on the link's thread and must be quick and thread-safe; `on_closed` too, once, when the launcher
  // has closed: a rank ends its process there, for its main thread may never come back.
  void start(std::function<std::string()> where, std::function<void()> on_closed);
  // The next command but `report`; blocks for it without a deadline: the launcher has one, and its end is on_closed.
  RankCommand next();
  void send(const RankEvent& event);  // thread-safe; a launcher that is gone is no error

 private:
  bool read_line(std::string& line);
  void serve(const std::function<std::string()>& where, const std::function<void()>& on_closed);

  const int fd_;
  std::string received_;
  std::mutex send_mutex_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<RankCommand> commands_;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace harness
