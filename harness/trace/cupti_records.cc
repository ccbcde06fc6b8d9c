#include "harness/trace/cupti_records.h"

#include <cstring>

namespace harness {
namespace {

template <class T>
T at(const std::uint8_t* record, std::size_t offset) {
  T value;
  std::memcpy(&value, record + offset, sizeof value);
  return value;
}

fsdp::Nanos time_at(const std::uint8_t* record, std::size_t offset) {
  return static_cast<fsdp::Nanos>(at<std::uint64_t>(record, offset));
}

// Sets aside what has no time that could be believed.
void keep(const CuptiOp& op, CuptiRecords& out) {
  if (op.begin == 0 || op.end == 0)
    ++out.losses.no_time;
  else if (op.end < op.begin)
    ++out.losses.backward;
  else
    out.ops.push_back(op);
}

void decode_kernel(const std::uint8_t* r, CuptiRecords& out) {
  namespace f = cupti::kernel;
  CuptiOp op;
  op.begin = time_at(r, f::kBegin), op.end = time_at(r, f::kEnd);
  op.device = at<std::uint32_t>(r, f::kDevice), op.stream = at<std::uint32_t>(r, f::kStream);
  op.correlation = at<std::uint32_t>(r, f::kCorrelation);
  const auto* name = at<const char*>(r, f::kName);
  op.name = out.name_id(name == nullptr ? "" : name);
  keep(op, out);
}

void decode_copy(const std::uint8_t* r, std::uint32_t kind, CuptiRecords& out) {
  namespace f = cupti::copy;
  CuptiOp op;
  op.kind = kind == cupti::kMemset ? OpKind::kMemset : OpKind::kMemcpy;
  op.begin = time_at(r, f::kBegin), op.end = time_at(r, f::kEnd);
  op.device = at<std::uint32_t>(r, f::kDevice), op.stream = at<std::uint32_t>(r, f::kStream);
  op.correlation = at<std::uint32_t>(r, kind == cupti::kPeerMemcpy ? f::kPeerCorrelation : f::kCorrelation);
  op.bytes = static_cast<fsdp::Bytes>(at<std::uint64_t>(r, f::kBytes));
  keep(op, out);
}

void decode_call(const std::uint8_t* r, bool driver, CuptiRecords& out) {
  namespace f = cupti::call;
  out.calls.push_back({time_at(r, f::kBegin), time_at(r, f::kEnd), at<std::uint32_t>(r, f::kThread),
                       at<std::uint32_t>(r, f::kCorrelation), at<std::uint32_t>(r, f::kFunction), driver});
}

void decode_external(const std::uint8_t* r, CuptiRecords& out) {
  namespace f = cupti::external;
  if (at<std::uint32_t>(r, f::kExternalKind) != cupti::kOurExternalKind) return;
  out.external[at<std::uint32_t>(r, f::kCorrelation)] = at<std::uint64_t>(r, f::kId);
}

void decode_record(const std::uint8_t* r, std::uint32_t kind, CuptiRecords& out) {
  ++out.records;
  switch (kind) {
    case cupti::kKernel:
    case cupti::kSerialKernel:
      return decode_kernel(r, out);
    case cupti::kMemcpy:
    case cupti::kPeerMemcpy:
    case cupti::kMemset:
      return decode_copy(r, kind, out);
    case cupti::kRuntimeCall:
    case cupti::kDriverCall:
      return decode_call(r, kind == cupti::kDriverCall, out);
    case cupti::kExternalCorrelation:
      return decode_external(r, out);
    case cupti::kOverhead:
      out.overheads.push_back({at<std::uint32_t>(r, cupti::overhead::kReason), time_at(r, cupti::overhead::kBegin),
                               time_at(r, cupti::overhead::kEnd)});
      return;
    default:
      return;
  }
}

}  // namespace

std::string losses_text(const CuptiLosses& l) {
  std::string out;
  const auto add = [&](std::uint64_t n, const char* what) {
    if (n > 0) out += (out.empty() ? "" : ", ") + std::to_string(n) + " " + what;
  };
  add(l.dropped, "records dropped by CUPTI");
  add(l.rejected, "buffers refused at the limit of memory");
  add(l.no_time, "operations without times");
  add(l.backward, "operations that end before they begin");
  add(l.truncated, "buffers cut inside a record");
  add(l.unreadable, "bytes behind a record of an unknown kind");
  return out;
}

std::uint32_t CuptiRecords::name_id(std::string_view name) {
  const auto [place, fresh] = name_ids_.try_emplace(std::string(name), static_cast<std::uint32_t>(names.size()));
  if (fresh) names.emplace_back(name);
  return place->second;
}

void decode_cupti_buffer(const std::uint8_t* buffer, std::size_t valid, std::uint32_t version, CuptiRecords& out) {
  for (std::size_t done = 0; done < valid;) {
    const std::size_t left = valid - done;
    const std::uint32_t kind = left < sizeof(std::uint32_t) ? 0 : at<std::uint32_t>(buffer + done, 0);
    const std::size_t size = cupti::record_size(kind, version);
    if (left >= sizeof(std::uint32_t) && size == 0) {
      out.losses.unreadable += left;
      return;
    }
    if (size == 0 || size > left) {
      ++out.losses.truncated;
      return;
    }
    decode_record(buffer + done, kind, out);
    done += size;
  }
}

void decode_cupti_buffer(std::uint8_t* buffer, std::size_t valid, decltype(cupti::Api::next_record) next,
                         CuptiRecords& out) {
  void* record = nullptr;
  int result;
  while ((result = next(buffer, valid, &record)) == cupti::kSuccess) {
    const auto* r = static_cast<const std::uint8_t*>(record);
    decode_record(r, at<std::uint32_t>(r, 0), out);
  }
  if (result == cupti::kEndOfBuffer) return;
  const std::size_t read =
      record == nullptr ? 0 : static_cast<std::size_t>(static_cast<std::uint8_t*>(record) - buffer);
  out.losses.unreadable += valid - read;
}

}  // namespace harness
