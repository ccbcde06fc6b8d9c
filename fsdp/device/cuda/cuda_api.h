// CudaRuntime: the calls of the CUDA runtime, of its allocator and of our kernels that the CUDA world makes, as an
// interface without a CUDA header. The plugin implements it over cudart and LibTorch's caching allocator, the tests
// over a fake that checks how it is used, so that the CUDA device is built and tested on machines without CUDA.
//
// Names and meaning are those of the CUDA runtime API reference, section 6 (developer documentation of CUDA 13.0):
// cudaStreamCreateWithPriority, cudaEventRecord and so on. A call returns 0 or its cudaError_t.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "fsdp/core/errors.h"
#include "fsdp/core/types.h"

namespace fsdp {

class CudaRuntime {
 public:
  using Status = int;         // cudaError_t
  using Stream = void*;       // cudaStream_t; null: the default stream
  using EventHandle = void*;  // cudaEvent_t
  enum class Priority : std::uint8_t { kNormal, kHigh };
  enum class Timing : std::uint8_t { kOff, kOn };  // kOff: cudaEventDisableTiming

  static constexpr Status kSuccess = 0, kOutOfMemory = 2, kNotReady = 600;  // driver_types.h

  virtual ~CudaRuntime() = default;

  virtual Status stream_create(Stream* stream, Priority priority) = 0;  // does not synchronise with the default stream
  virtual Status stream_destroy(Stream stream) = 0;
  virtual Status stream_wait_event(Stream stream, EventHandle event) = 0;
  virtual Status event_create(EventHandle* event, Timing timing) = 0;
  virtual Status event_destroy(EventHandle event) = 0;
  virtual Status event_record(EventHandle event, Stream stream) = 0;
  virtual Status event_query(EventHandle event) = 0;  // kNotReady while work before it is under way
  virtual Status event_elapsed(float* ms, EventHandle begin, EventHandle end) = 0;
  virtual Status copy(void* to, const void* from, std::size_t bytes, Stream stream) = 0;  // cudaMemcpyAsync

  // Memory whose first user is `stream`; given back it may be handed out again to that stream at once.
  virtual Status allocate(void** memory, std::size_t bytes, Stream stream) = 0;
  virtual Status release(void* memory, Stream stream) = 0;

  // Kernels (kernels.cu). Sums are made in fp32, in the order given, and rounded once.
  // out[i] = (accumulate ? out[i] : 0) + ((addend ? addend[i] : 0) + scale * sum over k of in[k][i])
  struct Sum {
    const void* const* in = nullptr;  // host array of `inputs` device pointers
    int inputs = 0;
    Dtype in_dtype = Dtype::kFloat32, out_dtype = Dtype::kFloat32;
    void* out = nullptr;
    Count count = 0;
    float scale = 1.0f;
    bool accumulate = false;
    const float* addend = nullptr;
  };
  static constexpr int kMostInputs = 16;
  virtual Status sum(const Sum& work, Stream stream) = 0;
  // Copies with `blocks` thread blocks and keeps them busy until `hold` has passed since the kernel began: what a
  // collective of that duration does to the multiprocessors.
  struct PacedCopy {
    void* to = nullptr;
    const void* from = nullptr;
    Bytes bytes = 0;
    int copies = 1;  // `from` is written that many times, one after the other
    Nanos hold = 0;
    int blocks = 1;
  };
  virtual Status paced_copy(const PacedCopy& work, Stream stream) = 0;

  virtual std::string error_name(Status status) const = 0;  // "cudaErrorIllegalAddress"
};

// Throws Error "[cuda] cudaEventRecord: cudaErrorIllegalAddress; ..." unless the call has succeeded.
void check_cuda(const CudaRuntime& runtime, CudaRuntime::Status status, const char* call);

// Owners. Destructors ignore what the call says: there is nobody to tell.
class CudaStream {
 public:
  CudaStream(CudaRuntime& runtime, CudaRuntime::Priority priority);
  ~CudaStream() { runtime_.stream_destroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  CudaRuntime::Stream get() const { return stream_; }

 private:
  CudaRuntime& runtime_;
  CudaRuntime::Stream stream_ = nullptr;
};

class CudaEvent {
 public:
  explicit CudaEvent(CudaRuntime& runtime, CudaRuntime::Timing timing = CudaRuntime::Timing::kOff);
  ~CudaEvent() { runtime_.event_destroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  CudaRuntime::EventHandle get() const { return event_; }
  void record(CudaRuntime::Stream stream);
  bool reached() const;

 private:
  CudaRuntime& runtime_;
  CudaRuntime::EventHandle event_ = nullptr;
};

}  // namespace fsdp
