// Exceptions that a caller can act on. Text: "[where] what; what to do". What cannot happen is SHARDSCOPE_CHECK.
#pragma once
#include <stdexcept>
#include <string>

#include "fsdp/core/types.h"

namespace fsdp {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bad input: a setting, a spec, a plan file. Exit code 2.
class ConfigError : public Error {
 public:
  using Error::Error;
};

// This machine or this build cannot do it; the text holds the remedy. Exit code 3.
class EnvironmentError : public Error {
 public:
  using Error::Error;
};

// A peer failed, disagreed or went away. The case ends as `comm_error`.
class CommError : public Error {
 public:
  using Error::Error;
};

// A wait passed its deadline. The case ends as `timeout`.
class TimeoutError : public Error {
 public:
  using Error::Error;
};

// The memory budget was passed. `cause` is "unit, pass, category" of the request that failed.
class OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& what, std::string cause, Bytes requested, Bytes live, Bytes budget)
      : Error(what), cause(std::move(cause)), requested(requested), live(live), budget(budget) {}
  std::string cause;
  Bytes requested, live, budget;
};

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& values);
}

}  // namespace fsdp

// A bug in this program if it fails; user input never triggers one. `values` is a std::string with the values involved.
#define SHARDSCOPE_CHECK(condition, values)                                                 \
  do {                                                                                      \
    if (!(condition)) ::fsdp::detail::check_failed(__FILE__, __LINE__, #condition, values); \
  } while (false)
