// NcclLibrary: the NCCL calls that the CUDA world makes, as an interface without NCCL's header; see cuda_api.h for why.
// Names and meaning are those of NCCL's user guide (2.28), API section. A call returns 0 or its ncclResult_t;
// communicators are made with blocking = 0, so any call on one may return kInProgress and is then complete when
// comm_async_error says so.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "fsdp/core/types.h"

namespace fsdp {

class NcclLibrary {
 public:
  using Status = int;    // ncclResult_t
  using Comm = void*;    // ncclComm_t
  using Stream = void*;  // cudaStream_t
  using UniqueId = std::array<char, 128>;

  static constexpr Status kSuccess = 0, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7;  // nccl.h
  static constexpr int kNoColor = -1;                                                          // NCCL_SPLIT_NOCOLOR

  struct Config {
    std::string name;                // commName: what NCCL's log and Nsight show
    int min_ctas = 0, max_ctas = 0;  // 0: NCCL's choice
  };
  enum class Op : std::uint8_t { kSum, kAverage };

  virtual ~NcclLibrary() = default;

  virtual int header_version() const = 0;  // NCCL_VERSION_CODE of the build
  virtual Status get_version(int* version) = 0;
  virtual Status get_unique_id(UniqueId* id) = 0;
  virtual Status comm_init(Comm* comm, int ranks, const UniqueId& id, int rank, const Config& config) = 0;
  virtual Status comm_split(Comm parent, int color, int key, Comm* comm, const Config& config) = 0;
  virtual Status comm_async_error(Comm comm, Status* state) = 0;
  virtual Status comm_finalize(Comm comm) = 0;
  virtual Status comm_destroy(Comm comm) = 0;
  virtual Status comm_abort(Comm comm) = 0;
  virtual Status comm_register(Comm comm, void* memory, std::size_t bytes, void** handle) = 0;
  virtual Status comm_deregister(Comm comm, void* handle) = 0;
  virtual Status mem_alloc(void** memory, std::size_t bytes) = 0;
  virtual Status mem_free(void* memory) = 0;

  virtual Status all_gather(const void* in, void* out, std::size_t count, Dtype d, Comm comm, Stream stream) = 0;
  virtual Status reduce_scatter(const void* in, void* out, std::size_t count, Dtype d, Op op, Comm comm,
                                Stream stream) = 0;
  virtual Status all_reduce(const void* in, void* out, std::size_t count, Dtype d, Op op, Comm comm, Stream stream) = 0;
  virtual Status broadcast(const void* in, void* out, std::size_t count, Dtype d, Comm comm, Stream stream) = 0;

  virtual std::string error_text(Status status, Comm comm) const = 0;  // ncclGetErrorString, ncclGetLastError
};

}  // namespace fsdp
