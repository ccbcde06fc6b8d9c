// One conformance suite for every Transport. A program that links transport_suite.cc defines worlds_under_test().
// Ranks run a function each; what they find wrong they throw, so that the same functions run in threads and in
// processes.
#pragma once
#include <functional>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "fsdp/comm/transport.h"

namespace fsdp::testing {

inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kLongTimeout = 60'000 * kMillisecond;  // never reached
inline constexpr Nanos kShortTimeout = 200 * kMillisecond;

using RankMain = std::function<void(Transport&)>;

struct World {
  std::string name;
  // Runs the function on `world` ranks; returns what went wrong, one sentence per rank, empty if nothing did.
  std::function<std::vector<std::string>(int world, Nanos timeout, const RankMain&)> run;
  Nanos disagreement_timeout = kLongTimeout;           // for transports that see a disagreement at the deadline only
  bool knows_arrivals = true;                          // run() returns the last rank's arrival
  bool names_missing = true;                           // a timeout names the ranks that have not arrived
  bool rounds_to_what_travels = false;                 // sums come out in in_dtype, and are converted then
  bool sees_units = true;                              // calls of two units that look alike are a disagreement
  bool any_order = false;                              // sums may be made in another order than the ranks'
  std::function<std::string(int world)> why_not = {};  // empty, or returns "": it runs here
};
inline void PrintTo(const World& world, std::ostream* out) { *out << world.name; }  // in names of tests
std::vector<World> worlds_under_test();

// Ranks as threads; make(rank) is called on each rank's thread.
std::vector<std::string> run_threads(int world, const std::function<std::unique_ptr<Transport>(int rank)>& make,
                                     const RankMain& rank_main);
// Ranks as forked processes; make(rank) is called in each.
std::vector<std::string> run_processes(int world, const std::function<std::unique_ptr<Transport>(int rank)>& make,
                                       const RankMain& rank_main);

inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::logic_error("not so: " + what);
}
inline void require_contains(const std::string& text, const std::string& part) {
  require(text.find(part) != std::string::npos, "'" + text + "' contains '" + part + "'");
}
// The text of the E that f throws.
template <class E, class F>
std::string text_thrown(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  throw std::logic_error("nothing was thrown");
}

// A counter that threads and forked processes share.
class SharedCounter {
 public:
  SharedCounter();
  ~SharedCounter();
  SharedCounter(const SharedCounter&) = delete;
  SharedCounter& operator=(const SharedCounter&) = delete;
  void add();
  void wait_for(int n) const;

 private:
  void* memory_;
};

}  // namespace fsdp::testing
