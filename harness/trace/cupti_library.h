// Where CUPTI comes from, and whether it is ours to take.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "harness/trace/cupti_abi.h"

namespace harness {

struct CuptiLibrary {
  cupti::Api api;
  std::string path;           // of the file that serves the calls
  std::uint32_t version = 0;  // as cuptiGetVersion says
};

// The copy that is in the process already (LibTorch brings one), else SHARDSCOPE_CUPTI=PATH (with a slash), else the
// loader's libcupti.so.13, .12 or libcupti.so. The library stays loaded for the life of the process. Null, and a
// sentence in `why`, when there is none or it lacks a call that is needed.
std::optional<CuptiLibrary> load_cupti(std::string& why);

// A sentence that names the tool which will take CUPTI in this process, empty when none is seen. Pure: `variable` gives
// an environment variable or null. The last word is the result of cuptiSubscribe.
std::string other_profiler(const std::function<const char*(const char*)>& variable);

// What a result of a call means for us, in a sentence: "another tool holds CUPTI ...".
std::string cupti_refusal(const char* call, int result);

}  // namespace harness
