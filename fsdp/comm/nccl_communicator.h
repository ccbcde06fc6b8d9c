// NcclCommunicator: one non-blocking NCCL communicator. NCCL's calls may return before they are complete; settle() asks
// until they are, with a deadline, so that an event recorded next stands behind the call.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "fsdp/comm/nccl_library.h"

namespace fsdp {

class NcclCommunicator {
 public:
  struct Place {
    int rank = 0, ranks = 1;
  };
  struct Setup {
    NcclLibrary::Config config;  // its name tells the communicator: "shardscope.shard.8"
    Nanos timeout = 0;
    std::function<void()> watch;  // called now and then while waiting; throws what makes waiting useless
  };

  // Every rank of the communicator constructs it, in the same order. Throws CommError naming the call, TimeoutError.
  NcclCommunicator(NcclLibrary& nccl, const NcclLibrary::UniqueId& id, Place place, Setup setup);
  // Of the parent's ranks those with the same color, sorted by key. `place` is what comes of that.
  NcclCommunicator(NcclCommunicator& parent, int color, int key, Place place, Setup setup);
  // Aborts, unless close() has been called.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const { return place_.rank; }
  int ranks() const { return place_.ranks; }
  const std::string& name() const { return setup_.config.name; }
  NcclLibrary& nccl() const { return nccl_; }
  NcclLibrary::Comm get() const { return comm_; }

  // For the result of a call on this communicator: waits until it is complete, throws CommError if it failed.
  void settle(NcclLibrary::Status status, const char* call);
  // Throws CommError if NCCL reports an error of what is under way. Does not wait.
  void check();
  // Ends it in good order: all its calls are complete, and all ranks do so. After it only the destructor may follow.
  void close() noexcept;
  // Ends it at once; what is in flight is dropped, its streams go on.
  void abort() noexcept;

 private:
  void wait(const char* call, NcclLibrary::Comm asked);
  [[noreturn]] void fail(NcclLibrary::Status status, const char* call) const;

  NcclLibrary& nccl_;
  const Place place_;
  const Setup setup_;
  NcclLibrary::Comm comm_ = nullptr;
};

}  // namespace fsdp
