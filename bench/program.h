// What the programs of this folder share: their numbers, the time of their threads.
#pragma once
#include <charconv>
#include <cstring>
#include <ctime>
#include <iostream>
#include <string>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"

namespace bench {

// Of all threads of the process, to the microsecond.
inline fsdp::Nanos process_cpu() { return static_cast<fsdp::Nanos>(std::clock()) * (1'000'000'000 / CLOCKS_PER_SEC); }

// The number that stands at argv[place], or `usual` where there is none; `what` names it. Throws ConfigError unless it
// is at least `least`.
template <class Number>
Number number_at(int argc, char** argv, int place, const std::string& what, Number usual, Number least = 1) {
  if (place >= argc) return usual;
  const char* const end = argv[place] + std::strlen(argv[place]);
  Number n{};
  const auto [stop, error] = std::from_chars(argv[place], end, n);
  if (error != std::errc{} || stop != end || n < least)
    throw fsdp::ConfigError("[" + what + "] '" + argv[place] + "' is no number from " + std::to_string(least) +
                            " on; give one");
  return n;
}

// The exit code of `body`, 2 with a sentence for a ConfigError.
template <class Body>
int run_program(const Body& body) {
  try {
    body();
    return 0;
  } catch (const fsdp::ConfigError& e) {
    std::cerr << e.what() << "\n";
    return 2;
  }
}

}  // namespace bench
