#include "fsdp/comm/linked_nccl.h"

#include <nccl.h>

#include <algorithm>

namespace fsdp {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(NcclLibrary::UniqueId));
static_assert(ncclInProgress == NcclLibrary::kInProgress && ncclRemoteError == NcclLibrary::kRemoteError &&
              ncclInvalidUsage == NcclLibrary::kInvalidUsage && NCCL_SPLIT_NOCOLOR == NcclLibrary::kNoColor);

ncclComm_t comm_of(void* c) { return static_cast<ncclComm_t>(c); }
cudaStream_t stream_of(void* s) { return static_cast<cudaStream_t>(s); }
ncclDataType_t type_of(Dtype d) { return d == Dtype::kFloat32 ? ncclFloat32 : ncclBfloat16; }
ncclRedOp_t op_of(NcclLibrary::Op op) { return op == NcclLibrary::Op::kSum ? ncclSum : ncclAvg; }

ncclConfig_t config_of(const NcclLibrary::Config& c) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = c.name.c_str();
  if (c.min_ctas > 0) config.minCTAs = c.min_ctas;
  if (c.max_ctas > 0) config.maxCTAs = c.max_ctas;
  return config;
}

class LinkedNccl final : public NcclLibrary {
 public:
  int header_version() const override { return NCCL_VERSION_CODE; }
  Status get_version(int* version) override { return ncclGetVersion(version); }
  Status get_unique_id(UniqueId* id) override {
    ncclUniqueId made{};
    const auto status = ncclGetUniqueId(&made);
    std::copy_n(made.internal, id->size(), id->begin());
    return status;
  }
  Status comm_init(Comm* comm, int ranks, const UniqueId& id, int rank, const Config& config) override {
    ncclUniqueId given{};
    std::copy_n(id.begin(), id.size(), given.internal);
    ncclConfig_t c = config_of(config);
    return ncclCommInitRankConfig(reinterpret_cast<ncclComm_t*>(comm), ranks, given, rank, &c);
  }
  Status comm_split(Comm parent, int color, int key, Comm* comm, const Config& config) override {
    ncclConfig_t c = config_of(config);
    return ncclCommSplit(comm_of(parent), color, key, reinterpret_cast<ncclComm_t*>(comm), &c);
  }
  Status comm_async_error(Comm comm, Status* state) override {
    ncclResult_t s = ncclSuccess;
    const auto status = ncclCommGetAsyncError(comm_of(comm), &s);
    *state = s;
    return status;
  }
  Status comm_finalize(Comm comm) override { return ncclCommFinalize(comm_of(comm)); }
  Status comm_destroy(Comm comm) override { return ncclCommDestroy(comm_of(comm)); }
  Status comm_abort(Comm comm) override { return ncclCommAbort(comm_of(comm)); }
  Status comm_register(Comm comm, void* memory, std::size_t bytes, void** handle) override {
    return ncclCommRegister(comm_of(comm), memory, bytes, handle);
  }
  Status comm_deregister(Comm comm, void* handle) override { return ncclCommDeregister(comm_of(comm), handle); }
  Status mem_alloc(void** memory, std::size_t bytes) override { return ncclMemAlloc(memory, bytes); }
  Status mem_free(void* memory) override { return ncclMemFree(memory); }
  Status all_gather(const void* in, void* out, std::size_t count, Dtype d, Comm comm, Stream stream) override {
    return ncclAllGather(in, out, count, type_of(d), comm_of(comm), stream_of(stream));
  }
  Status reduce_scatter(const void* in, void* out, std::size_t count, Dtype d, Op op, Comm comm,
                        Stream stream) override {
    return ncclReduceScatter(in, out, count, type_of(d), op_of(op), comm_of(comm), stream_of(stream));
  }
  Status all_reduce(const void* in, void* out, std::size_t count, Dtype d, Op op, Comm comm, Stream stream) override {
    return ncclAllReduce(in, out, count, type_of(d), op_of(op), comm_of(comm), stream_of(stream));
  }
  Status broadcast(const void* in, void* out, std::size_t count, Dtype d, Comm comm, Stream stream) override {
    return ncclBroadcast(in, out, count, type_of(d), 0, comm_of(comm), stream_of(stream));
  }
  std::string error_text(Status status, Comm comm) const override {
    std::string text = ncclGetErrorString(static_cast<ncclResult_t>(status));
    const char* const last = ncclGetLastError(comm_of(comm));
    if (last != nullptr && *last != '\0') text += " (" + std::string(last) + ")";
    return text;
  }
};

}  // namespace

std::unique_ptr<NcclLibrary> make_linked_nccl() { return std::make_unique<LinkedNccl>(); }

}  // namespace fsdp
