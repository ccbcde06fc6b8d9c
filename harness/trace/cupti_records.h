// CUPTI's activity buffers, decoded. Pure functions of bytes: no library, no driver, no clock.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fsdp/core/types.h"
#include "harness/analysis/device_trace.h"
#include "harness/trace/cupti_abi.h"

namespace harness {

// Times are those of CUPTI's clock.
struct CuptiOp {
  fsdp::Nanos begin = 0, end = 0;
  OpKind kind = OpKind::kKernel;
  std::uint32_t device = 0, stream = 0, correlation = 0;
  std::uint32_t name = kNoName;  // into CuptiRecords::names; kernels
  fsdp::Bytes bytes = 0;         // copies and sets
};
struct CuptiCall {
  fsdp::Nanos begin = 0, end = 0;
  std::uint32_t thread = 0, correlation = 0, function = 0;
  bool driver = false;
};
struct CuptiOverhead {
  std::uint32_t reason = 0;
  fsdp::Nanos begin = 0, end = 0;
};

// What did not arrive. Any of them makes the trace partial.
struct CuptiLosses {
  std::uint64_t dropped = 0;     // by CUPTI: it found no room
  std::uint64_t rejected = 0;    // buffers that we did not give: the cap was reached
  std::uint64_t no_time = 0;     // records of operations whose begin or end is 0: the device's own buffer was full
  std::uint64_t backward = 0;    // records that end before they begin
  std::uint64_t truncated = 0;   // buffers that end inside a record
  std::uint64_t unreadable = 0;  // bytes behind a record of a kind that is not known
  bool any() const { return dropped + rejected + no_time + backward + truncated + unreadable > 0; }
};
// "12 records dropped by CUPTI, 3 operations without times": empty when nothing was lost.
std::string losses_text(const CuptiLosses& losses);

struct CuptiRecords {
  std::vector<CuptiOp> ops;
  std::vector<CuptiCall> calls;
  std::vector<CuptiOverhead> overheads;
  std::unordered_map<std::uint32_t, std::uint64_t> external;  // correlation -> our external id
  std::vector<std::string> names;
  std::uint64_t records = 0;
  CuptiLosses losses;

  std::uint32_t name_id(std::string_view name);

 private:
  std::unordered_map<std::string, std::uint32_t> name_ids_;
};

// The records of one buffer, in any order of buffers. Kernel names are read through the pointers in the records: CUPTI
// must still be loaded. `version` as in cupti::record_size.
void decode_cupti_buffer(const std::uint8_t* buffer, std::size_t valid, std::uint32_t version, CuptiRecords& out);
// The same, walked by the library's own cuptiActivityGetNextRecord, which knows the sizes of later versions.
void decode_cupti_buffer(std::uint8_t* buffer, std::size_t valid, decltype(cupti::Api::next_record) next,
                         CuptiRecords& out);

}  // namespace harness
