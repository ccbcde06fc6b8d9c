#include "fsdp/device/cuda/cuda_api.h"

namespace fsdp {

void check_cuda(const CudaRuntime& runtime, CudaRuntime::Status status, const char* call) {
  if (status == CudaRuntime::kSuccess) return;
  throw Error("[cuda] " + std::string(call) + ": " + runtime.error_name(status) +
              "; an earlier kernel may be the cause: CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer shows which");
}

CudaStream::CudaStream(CudaRuntime& runtime, CudaRuntime::Priority priority) : runtime_(runtime) {
  check_cuda(runtime, runtime.stream_create(&stream_, priority), "cudaStreamCreateWithPriority");
}

CudaEvent::CudaEvent(CudaRuntime& runtime, CudaRuntime::Timing timing) : runtime_(runtime) {
  check_cuda(runtime, runtime.event_create(&event_, timing), "cudaEventCreateWithFlags");
}

void CudaEvent::record(CudaRuntime::Stream stream) {
  check_cuda(runtime_, runtime_.event_record(event_, stream), "cudaEventRecord");
}

bool CudaEvent::reached() const {
  const CudaRuntime::Status status = runtime_.event_query(event_);
  if (status == CudaRuntime::kNotReady) return false;
  check_cuda(runtime_, status, "cudaEventQuery");
  return true;
}

}  // namespace fsdp
