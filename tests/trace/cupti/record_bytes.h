// Writes CUPTI records byte by byte, in the layout of a given version of the library.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "harness/trace/cupti_abi.h"

namespace harness::cupti {

class RecordBytes {
 public:
  explicit RecordBytes(std::uint32_t version) : version_(version) {}

  RecordBytes& kernel(const char* name, std::uint64_t begin, std::uint64_t end, std::uint32_t correlation,
                      std::uint32_t stream = 7, std::uint32_t device = 0) {
    std::uint8_t* r = add(kKernel);
    put(r, kernel::kBegin, begin), put(r, kernel::kEnd, end), put(r, kernel::kDevice, device);
    put(r, kernel::kStream, stream), put(r, kernel::kCorrelation, correlation), put(r, kernel::kName, name);
    return *this;
  }
  RecordBytes& copy(Kind kind, std::uint64_t begin, std::uint64_t end, std::uint32_t correlation, std::uint64_t bytes) {
    std::uint8_t* r = add(kind);
    put(r, copy::kBegin, begin), put(r, copy::kEnd, end), put(r, copy::kBytes, bytes);
    put(r, copy::kDevice, std::uint32_t{1}), put(r, copy::kStream, std::uint32_t{9});
    put(r, kind == kPeerMemcpy ? copy::kPeerCorrelation : copy::kCorrelation, correlation);
    return *this;
  }
  RecordBytes& call(Kind kind, std::uint64_t begin, std::uint64_t end, std::uint32_t correlation,
                    std::uint32_t thread = 100, std::uint32_t function = 211) {
    std::uint8_t* r = add(kind);
    put(r, call::kFunction, function), put(r, call::kBegin, begin), put(r, call::kEnd, end);
    put(r, call::kThread, thread), put(r, call::kCorrelation, correlation);
    return *this;
  }
  RecordBytes& external(std::uint32_t correlation, std::uint64_t id, std::uint32_t kind = kOurExternalKind) {
    std::uint8_t* r = add(kExternalCorrelation);
    put(r, external::kExternalKind, kind), put(r, external::kId, id), put(r, external::kCorrelation, correlation);
    return *this;
  }
  RecordBytes& overhead(std::uint32_t reason, std::uint64_t begin, std::uint64_t end) {
    std::uint8_t* r = add(kOverhead);
    put(r, overhead::kReason, reason), put(r, overhead::kBegin, begin), put(r, overhead::kEnd, end);
    return *this;
  }
  // A record of a kind that nobody here knows.
  RecordBytes& unknown(std::uint32_t kind, std::size_t size) {
    bytes_.resize(bytes_.size() + size);
    put(bytes_.data() + bytes_.size() - size, 0, kind);
    return *this;
  }

  std::vector<std::uint8_t>& bytes() { return bytes_; }

 private:
  std::uint8_t* add(Kind kind) {
    const std::size_t size = record_size(kind, version_);
    bytes_.resize(bytes_.size() + size, 0xAB);  // what is not written must not be read
    std::uint8_t* r = bytes_.data() + bytes_.size() - size;
    put(r, 0, static_cast<std::uint32_t>(kind));
    return r;
  }
  template <class T>
  static void put(std::uint8_t* record, std::size_t offset, T value) {
    std::memcpy(record + offset, &value, sizeof value);
  }

  const std::uint32_t version_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace harness::cupti
