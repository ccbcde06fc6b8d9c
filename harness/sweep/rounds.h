// DIR/rounds and DIR/rounds.csv: what was measured of interleaved cases, round by round. The directory holds the rounds
// of a sweep that is not finished, the table those of finished ones: every repetition, nothing is discarded.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/store/store.h"

namespace harness {

// A results.db of its own, a record for each round. Used from one thread.
class RoundsKept {
 public:
  static bool exists(const std::string& directory);  // of the results: an earlier call did not come to its end
  explicit RoundsKept(const std::string& directory, sqlite::GoOnWaiting wait = sqlite::five_seconds);

  std::vector<CaseRecord> read(const std::string& id);
  void write(const std::string& id, std::size_t round, CaseRecord r);
  // Every case's rounds, whatever became of the case, take the place of what the table says of that case; then the
  // directory goes. Stopped in between, by a power cut too, it can be done again.
  void move_to_table();

 private:
  static std::string name_of(const std::string& id, std::size_t round) { return id + "@" + std::to_string(round); }

  const std::string results_, directory_;
  std::optional<Store> store_;
  std::set<std::string> names_;
  std::vector<std::string> cases_;  // in the order in which they were first written
};

}  // namespace harness
