// FakeCuda: a GPU for tests. Implements CudaRuntime and NcclLibrary over host memory for any number of ranks as
// threads, as strictly as the real ones allow and no more: streams are in-order queues that make progress only when
// somebody asks for an event, in an order among streams that a seed decides.
//
// It checks how it is used. Every piece of work names what it reads and writes; a vector clock per stream, joined by
// events and by what the host has seen complete, says which accesses are ordered. Reported as faults:
//   - memory read or written on one stream while another may still write it (an event that was not waited for)
//   - memory used after it was given back, or given back while a stream may still use it
//   - collectives that do not match between ranks
//   - handles that are unknown or destroyed
// Any call can be made to fail once (fail_call); live() counts what has been made and not destroyed.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/comm/nccl_library.h"
#include "fsdp/device/cuda/cuda_api.h"

namespace fsdp::testing {

class FakeCuda {
 public:
  explicit FakeCuda(int ranks, std::uint32_t seed = 1);
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  CudaRuntime& runtime(int rank);
  NcclLibrary& nccl(int rank);

  std::vector<std::string> faults() const;
  struct Live {
    int streams = 0, events = 0, blocks = 0, communicators = 0, registrations = 0;
    friend bool operator==(const Live&, const Live&) = default;
  };
  Live live() const;

  // This rank's call of that name with this number (from 0) fails. calls() counts all but questions answered with "not
  // yet", by name.
  void fail_call(int rank, const std::string& name, int number);
  std::map<std::string, int> calls(int rank) const;
  std::string failed_call() const;

  // Bytes that one rank may hold at once; beyond them allocate() says that there is no memory.
  void set_capacity(Bytes bytes);
  Bytes allocated(int rank) const;
  void set_nccl_version(int version);

  // A stream that stands still until released: what is behind it does not happen.
  void hold(int rank, CudaRuntime::Stream stream);
  void let_go(int rank, CudaRuntime::Stream stream);
  // Work of a test's own on a stream of a rank; reads and writes are checked like any.
  struct Range {
    const void* begin = nullptr;
    Bytes bytes = 0;
  };
  void enqueue(int rank, CudaRuntime::Stream stream, const std::string& what, const std::vector<Range>& reads,
               const std::vector<Range>& writes, std::function<void()> work = {});
  // Everything that can happen, happens.
  void run();
  std::vector<CudaRuntime::PacedCopy> paced_copies() const;  // asked for so far
  std::vector<NcclLibrary::Config> configs() const;  // of the communicators made, in order of creation by rank 0

  struct State;  // fake_cuda_state.h

 private:
  std::unique_ptr<State> s_;
  std::vector<std::unique_ptr<CudaRuntime>> runtimes_;
  std::vector<std::unique_ptr<NcclLibrary>> nccls_;
};

}  // namespace fsdp::testing
