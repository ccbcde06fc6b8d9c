// RankGroup: the ranks of one trial as the one who leads it sees them, wherever they run.
#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "fsdp/core/types.h"
#include "harness/trial/process_sight.h"

namespace harness {

struct RankUpdate {
  enum class Kind {
    kLine,    // a line from its control socket
    kClosed,  // its control socket has closed
    kEnded,   // the process has ended; comes after all its lines
  } kind;
  int rank;
  std::string line;
  int wait_status = 0;    // kEnded: as waitpid gives it
  bool host_oom = false;  // kEnded by SIGKILL, and the kernel has ended processes for want of memory meanwhile
};

class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual int count() const = 0;
  virtual pid_t pid(int rank) const = 0;                     // on the host of the rank
  virtual void send(int rank, const std::string& line) = 0;  // a rank that is gone is no error: its end is reported
  // Everything that happened since the last call; waits for something until `deadline` (steady clock).
  virtual std::vector<RankUpdate> wait(fsdp::Nanos deadline) = 0;
  // The good end: closes the sockets, which ranks take as the word to end; terminate() after `grace`.
  virtual void finish(fsdp::Nanos grace) noexcept = 0;
  // Ends what still runs, by force after `grace`. Idempotent.
  virtual void terminate(fsdp::Nanos grace) noexcept = 0;
  // The end of what the rank wrote to stdout and stderr, at most `bytes`.
  virtual std::string log_tail(int rank, std::size_t bytes = 4096) const = 0;
  // What the system tells of the rank's process, as of the last question for a report.
  virtual ProcessSight sight(int rank) const = 0;
};

}  // namespace harness
