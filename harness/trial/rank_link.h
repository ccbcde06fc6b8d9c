// RankLink: a rank's end of the control socket. A thread of its own reads it: it answers `report` at once, whatever the
// rank's main thread is stuck in, hands the other commands over, and notices when the launcher is gone.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "harness/trial/lateness.h"
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
  // Called on the link's thread; quick and thread-safe.
  struct Handlers {
    std::function<std::string()> where;
    // Once, when the launcher has closed: a rank ends its process there, for its main thread may never come back.
    std::function<void()> on_closed;
    std::function<std::vector<CommunicatorState>()> communicators = {};  // goes with `where`; may be empty
    std::function<bool(const std::string& line)> other = {};  // takes a line that is no command; may be empty
  };
  void start(Handlers handlers);
  // The next command but `report`; blocks for it without a deadline: the launcher has one, and its end is on_closed.
  RankCommand next();
  void send(const RankEvent& event) { send_line(to_json_line(event)); }
  void send_line(const std::string& line);  // thread-safe; a launcher that is gone is no error

 private:
  bool read_line(std::string& line);
  void serve(const Handlers& handlers);
  void report(const Handlers& handlers);

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
