// The part of CUPTI's documented binary interface that is used here, in own words: numbers, offsets and signatures of
// the Activity API, CUDA 12.0 to 13.x. No CUDA header is needed to build; tests/trace/cupti holds it against the real
// headers where they are. CUPTI fills the newest record layout that the loaded library knows; a record only ever grows
// at its end, so fields are read by offset and only sizes depend on the version.
#pragma once
#include <cstddef>
#include <cstdint>

namespace harness::cupti {

// CUptiResult
inline constexpr int kSuccess = 0, kEndOfBuffer = 12, kInvalidKind = 21, kNoPrivileges = 35, kOtherSubscriber = 39,
                     kUnknownError = 999;

// CUpti_ActivityKind
enum Kind : std::uint32_t {
  kMemcpy = 1,
  kMemset = 2,
  kSerialKernel = 3,
  kDriverCall = 4,
  kRuntimeCall = 5,
  kKernel = 10,  // "concurrent kernel": the one that does not serialize
  kOverhead = 17,
  kPeerMemcpy = 22,
  kExternalCorrelation = 39,
};

inline constexpr std::uint32_t kOurExternalKind = 5;  // CUSTOM2; Kineto uses CUSTOM0 and CUSTOM1
inline constexpr std::uint32_t kFlushForced = 1;
inline constexpr std::uint32_t kZeroedBuffers = 5;     // attribute: buffers come zeroed
inline constexpr std::uint32_t kSystemThreadIds = 1;   // gettid
inline constexpr std::uint32_t kRejectionIsSafe = 27;  // from this version a buffer request may be refused (CUDA 12.9)

// Offsets within records.
namespace kernel {
inline constexpr std::size_t kBegin = 16, kEnd = 24, kDevice = 40, kStream = 48, kCorrelation = 92, kName = 104;
}
namespace copy {  // memcpy, peer memcpy and memset
inline constexpr std::size_t kBytes = 8, kBegin = 16, kEnd = 24, kDevice = 32, kStream = 40, kCorrelation = 44,
                             kPeerCorrelation = 60;
}
namespace call {  // driver and runtime
inline constexpr std::size_t kFunction = 4, kBegin = 8, kEnd = 16, kThread = 28, kCorrelation = 32;
}
namespace external {
inline constexpr std::size_t kExternalKind = 4, kId = 8, kCorrelation = 16;
}
namespace overhead {
inline constexpr std::size_t kReason = 4, kBegin = 24, kEnd = 32;
}

// Bytes of a record; 0: a kind that is not known here. `version`: as cuptiGetVersion says (26: CUDA 12.8, 130001: 13.0
// update 1).
constexpr std::size_t record_size(std::uint32_t kind, std::uint32_t version) {
  switch (kind) {
    case kKernel:
    case kSerialKernel:
      return version >= 130000 ? 216 : 208;
    case kMemcpy:
      return version >= 26 ? 96 : 88;
    case kPeerMemcpy:
      return 96;
    case kMemset:
      return 88;
    case kRuntimeCall:
    case kDriverCall:
      return 40;
    case kExternalCorrelation:
      return 24;
    case kOverhead:
      return version >= 22 ? 56 : version >= 20 ? 48 : 40;
    default:
      return 0;
  }
}
// Kernel records of 13.1 and later are longer than written here: those are walked with the library's own function.
constexpr bool sizes_known(std::uint32_t version) { return version >= 19 && version < 130100; }

using Subscriber = void*;
using BufferRequest = void (*)(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records);
using BufferComplete = void (*)(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t size,
                                std::size_t valid);
using Callback = void (*)(void* user, std::uint32_t domain, std::uint32_t id, const void* data);

// The calls. Those marked optional may be null.
struct Api {
  int (*get_version)(std::uint32_t*) = nullptr;
  int (*subscribe)(Subscriber*, Callback, void* user) = nullptr;
  int (*unsubscribe)(Subscriber) = nullptr;
  int (*register_callbacks)(BufferRequest, BufferComplete) = nullptr;
  int (*enable)(std::uint32_t kind) = nullptr;
  int (*disable)(std::uint32_t kind) = nullptr;
  int (*flush_all)(std::uint32_t flag) = nullptr;
  int (*next_record)(std::uint8_t* buffer, std::size_t valid, void** record) = nullptr;
  int (*dropped_records)(void* context, std::uint32_t stream, std::size_t* dropped) = nullptr;
  int (*push_external)(std::uint32_t kind, std::uint64_t id) = nullptr;
  int (*pop_external)(std::uint32_t kind, std::uint64_t* last) = nullptr;
  int (*timestamp)(std::uint64_t*) = nullptr;
  int (*set_attribute)(std::uint32_t attribute, std::size_t* size, void* value) = nullptr;  // optional
  int (*set_thread_ids)(std::uint32_t type) = nullptr;                                      // optional
};

}  // namespace harness::cupti
