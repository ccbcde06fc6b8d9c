// RankWatch: which ranks of a trial show life, for whoever leads them.
//
// All ranks are asked where they are, four times within step_timeout or more often; a thread of theirs answers,
// whatever the main thread is stuck in. A rank is active when it says something of its own accord, when its account has
// changed since the last one, or when its main thread has used the processor. One that waits in a collective is
// excused: its transport has a deadline of its own, knows more, and speaks first. So a stopped, sleeping or starved
// process is found in every phase, also while it starts, and a slow one that works is not.
#pragma once
#include <string>
#include <vector>

#include "fsdp/core/types.h"
#include "harness/trial/lateness.h"
#include "harness/trial/rank_group.h"

namespace harness {

class RankWatch {
 public:
  // The group outlives the watch.
  RankWatch(RankGroup& ranks, fsdp::Nanos step_timeout);

  void ask_when_due();
  void ask();
  // A line of a rank; true when it was part of an answer to a question and nothing else.
  bool take(int rank, const std::string& line);
  void set_where(int rank, const std::string& where);
  // It was asked for something that takes time, or has done so.
  void set_given(int rank, bool given);
  void set_gone(int rank) { watched_.at(static_cast<std::size_t>(rank)).state.gone = true; }

  // All that are not gone have answered the last question.
  bool all_answer() const;
  // Those that have been asked for something and have not been active for longer than step_timeout.
  std::vector<int> silent() const;
  std::vector<RankState> states() const;

 private:
  struct Watched {
    RankState state;
    fsdp::Nanos heard = 0, active = 0;
  };
  void look(int rank);

  RankGroup& ranks_;
  const fsdp::Nanos limit_, period_;
  fsdp::Nanos asked_ = 0;
  std::vector<Watched> watched_;
};

}  // namespace harness
