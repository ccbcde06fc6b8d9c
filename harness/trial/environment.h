// What a result carries about where it was made: machine, versions, the command that makes it again.
#pragma once
#include <map>
#include <string>

#include "harness/sweep/settings.h"

namespace harness {

std::string shardscope_version();  // "0.1.0"
std::string git_revision();  // of the tree that was built, "-dirty" appended when it had changes; "unknown" without git

// cpu, cores (that this process may use), memory_bytes, kernel, host, shardscope, git_revision, and every environment
// variable that is known to change what is measured (threads, allocators, NCCL, Gloo, preloads), as "env.NAME".
std::map<std::string, std::string> host_environment();
int usable_cores();

// "shardscope run --model llama --wrap block ...": the settings that differ from their defaults, quoted for a shell.
std::string command_of(const CaseSettings& settings);

}  // namespace harness
