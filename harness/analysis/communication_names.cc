// Which kernels communicate, by name: the one place to add a library's.
#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <string>

#include "harness/analysis/device_trace.h"

namespace harness {
namespace {

using Parts = std::initializer_list<std::string_view>;

bool any_of(const std::string& text, Parts parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view p) { return text.find(p) != std::string::npos; });
}

std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// Reductions among the threads of one kernel.
void drop_local_reductions(std::string& text) {
  for (std::string_view who : {"warp", "block", "thread", "quad", "cta"}) {
    for (std::string_view what : {"allreduce", "_allreduce", "_all_reduce", "reducescatter", "_reduce_scatter"}) {
      const std::string part = std::string(who) + std::string(what);
      for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part)) text.erase(at, part.size());
    }
  }
}

bool is_nccl(std::string_view kernel, const std::string& text) {
  constexpr std::string_view kPrefixes[] = {"nccl", "hccl", "rccl", "msccl"};
  const auto begins = [&](std::string_view p) { return text.starts_with(p); };
  return is_emulated_name(kernel) || any_of(text, {"ncclkernel", "nccldevkernel"}) ||
         (std::any_of(std::begin(kPrefixes), std::end(kPrefixes), begins) && !text.starts_with("mscclpp"));
}

}  // namespace

CommunicationName communication_name(std::string_view kernel) {
  std::string text = lowered(kernel);
  if (is_nccl(kernel, text)) return CommunicationName::kNccl;
  // PyTorch's compiler names kernels after all the operators that it fused, collectives' waits among them.
  if (text.starts_with("triton_") && any_of(text, {"_fused_"})) return CommunicationName::kNo;
  if (any_of(text, {"copy_in", "copy_out", "deep_ep::layout", "get_dispatch_layout"})) return CommunicationName::kNo;
  drop_local_reductions(text);
  const bool collective =
      any_of(text, {"allreduce", "all_reduce", "allgather", "all_gather", "reducescatter", "reduce_scatter", "alltoall",
                    "all_to_all", "all2all", "a2a_", "sendrecv", "send_recv", "cross_device_reduce", "quickreduce",
                    "quick_reduce", "one_shot_reduce", "oneshotreduce", "two_shot_reduce"});
  const bool library = any_of(text, {"nvshmem",
                                     "rocshmem",
                                     "ishmem",
                                     "deep_ep",
                                     "deepep",
                                     "hybrid_ep",
                                     "mscclpp",
                                     "multimem",
                                     "userbuffers",
                                     "pplx",
                                     "mori::",
                                     "uccl",
                                     "oneccl",
                                     "ccl_kernel",
                                     "xccl",
                                     "hcom_",
                                     "mnnvl",
                                     "lamport",
                                     "flashinfer::comm",
                                     "trtllm_moe_comm",
                                     "moe_comm",
                                     "vllm::cross_device",
                                     "ncclsym"}) ||
                       text.starts_with("ccl::") || text.starts_with("gloo:") || text.starts_with("hccl");
  if (collective || library) {
    const bool fused = any_of(text, {"gemm", "matmul", "_mm_", "attention", "flash_fwd", "flash_bwd", "conv2d"});
    return fused ? CommunicationName::kHint : CommunicationName::kOther;
  }
  const bool hint =
      any_of(text, {"one_shot",      "oneshot",      "two_shot",    "twoshot",        "symm_mem",       "symmem",
                    "symmetric_mem", "put_signal",   "wait_signal", "barrier_kernel", "device_barrier", "cross_device",
                    "intranode",     "internode",    "p2p",         "peer_to_peer",   "_ipc_",          "rdma",
                    "nvlink",        "remote_write", "remote_read", "::dispatch<",    "::combine<",     "ep_dispatch",
                    "ep_combine",    "custom_ar"});
  return hint ? CommunicationName::kHint : CommunicationName::kNo;
}

}  // namespace harness
