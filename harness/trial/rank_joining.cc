#include "harness/trial/rank_joining.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "fsdp/core/errors.h"
#include "harness/trial/join_messages.h"

namespace harness {
namespace {

// The leader's memfd and nothing else: a path of the file system is none of its business.
Fd open_shared_memory(const std::string& path) {
  const bool named = path.starts_with("/proc/");
  Fd memory(named ? open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC) : -1);
  if (named && !memory.open())
    throw fsdp::EnvironmentError("[launch] the memory that the ranks of this host share cannot be opened (" + path +
                                 ": " + std::strerror(errno) +
                                 "); if they run in containers of their own, use --collectives gloo");
  if (!named || fcntl(memory.get(), F_GET_SEALS) < 0)
    throw fsdp::CommError("[launch] rank 0 names " + path + " as the memory that ranks share, which it is not");
  return memory;
}
}  // namespace

RankJob RankJoining::receive_job(RankLink& link) {
  while (true) {
    const std::string line = link.read_first_line();
    if (const auto preparation = preparation_from_json(line)) {
      if (!preparation->interface.empty())
        setenv("GLOO_SOCKET_IFNAME", preparation->interface.c_str(), 0);  // a user's choice stays
      if (!preparation->shared_memory.empty()) shared_memory_ = open_shared_memory(preparation->shared_memory);
      continue;
    }
    RankJob job = rank_job_from_json(line);
    if (shared_memory_.open()) job.shared_memory_fd = shared_memory_.get();
    return job;
  }
}

}  // namespace harness
