// Why a trial ended badly: pure functions from what was seen to a status and one sentence.
#pragma once
#include <string>
#include <vector>

#include "fsdp/core/types.h"
#include "harness/store/records.h"

namespace harness {

// What one rank's failure looked like from outside.
struct Failure {
  enum class Kind {
    kSignal,    // a signal ended it, not one of ours
    kReported,  // it said so itself
    kExit,      // it exited without a result
    kClosed,    // its socket closed and it did not end
  };
  Status status;
  int rank;
  Kind kind;
  std::string reason;        // a clause that follows "rank N"
  std::string cause = {};    // "unit, pass, category" of an out-of-memory
  std::string log = {};      // the end of the rank's log, where it helps
  std::string where = {};    // phase, step, last collective, as the rank said
  fsdp::Bytes held = -1;     // of an out-of-memory: what the rank had then; -1: not told
  std::string passing = {};  // trouble that may be gone when the case is run again (kPassingTrouble); empty: the case's
};

struct Outcome {
  Status status;
  std::string reason;  // one sentence
  std::string cause;
  int rank = -1;
  fsdp::Bytes held = -1;
  std::string passing = {};  // as of the failure
};

// `wait_status` as waitpid gives it; `doing`: "in repetition 2"; `host_oom`: the kernel ended it for want of memory.
Failure failure_of_exit(int rank, int wait_status, const std::string& doing, const std::string& log,
                        bool host_oom = false);

// Which trouble of the machine, if any, rather than a property of the case, the failure is: a signal that programs do
// not send themselves, no memory, descriptors, processes or room on the host, a machine or build that cannot do it.
std::string passing_trouble(const Failure& f);

// True when no further news could change the verdict: a signal, an out-of-memory, a bad setting.
bool decisive(const std::vector<Failure>& failures);

// The cause among failures in order of arrival: a signal before out-of-memory before a bad setting before an exit or an
// exception before a timeout before a communication error, which is what the peers of all the others report.
Outcome outcome_of(const std::vector<Failure>& failures);

// A rank that had not answered when the time of the trial was over.
struct Silence {
  int rank;
  std::string where;  // what it said when asked; empty: not even that
};
Outcome outcome_of_silence(const std::vector<Silence>& silent, fsdp::Nanos timeout, const std::string& doing);

// A rank that waited too long, or lost a peer: what a rank that is stuck does to its peers. `late`: of lateness_text().
bool may_be_due_to_another(const std::vector<Failure>& failures);
Outcome outcome_of_lateness(int rank, const std::string& late, const std::vector<Failure>& failures);
// The rank that the transports of those who gave up say has not arrived, where all that say one say the same and it has
// not failed itself; -1: none. It may have entered the call and sleep in it, so that its own account does not tell.
int missing_rank(const std::vector<Failure>& failures);

// The last lines of a log as one line of at most `limit` characters, for a sentence; empty for an empty log.
std::string last_lines(const std::string& log, std::size_t limit = 300);

}  // namespace harness
