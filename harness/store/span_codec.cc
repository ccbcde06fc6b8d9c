#include "harness/store/span_codec.h"

#include <zlib.h>

#include <utility>

#include "fsdp/core/errors.h"

namespace harness {
namespace {

constexpr std::uint64_t kFormat = 1;
// A few bytes must not become gigabytes: a rank's plain bytes, those of a byte of deflate (real timelines have 3 to
// 10), and the fewest of a span. What is beyond is damage.
constexpr std::uint64_t kLargest = 256ull << 20, kLargestRatio = 100, kLeastOfSpan = 12;

void put(std::string& out, std::uint64_t v) {
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  out += static_cast<char>(v);
}
void put_signed(std::string& out, std::int64_t v) {
  put(out, (static_cast<std::uint64_t>(v) << 1) ^ static_cast<std::uint64_t>(v >> 63));
}

// Without a bound on what ranks may say; what wraps is refused when it is read.
std::int64_t minus(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

[[noreturn]] void damaged() { throw fsdp::ConfigError("[spans] the stored timeline is damaged; run the case again"); }

struct Reader {
  const std::string& in;
  std::size_t at = 0;
  std::uint64_t get() {
    std::uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at == in.size()) damaged();
      const auto byte = static_cast<unsigned char>(in[at++]);
      v |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return v;
    }
    damaged();
  }
  std::int64_t get_signed() {
    const std::uint64_t v = get();
    return static_cast<std::int64_t>(v >> 1) ^ -static_cast<std::int64_t>(v & 1);
  }
  template <class T>
  T get_as() {
    const std::int64_t v = get_signed();
    if (!std::in_range<T>(v)) damaged();
    return static_cast<T>(v);
  }
  template <class E>
  E get_enum(E last) {
    const std::uint64_t v = get();
    if (v > static_cast<std::uint64_t>(last)) damaged();
    return static_cast<E>(v);
  }
};

fsdp::Nanos sum_of(fsdp::Nanos a, fsdp::Nanos b) {
  fsdp::Nanos sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) damaged();
  return sum;
}
fsdp::Nanos difference_of(fsdp::Nanos a, fsdp::Nanos b) {
  fsdp::Nanos difference = 0;
  if (__builtin_sub_overflow(a, b, &difference)) damaged();
  return difference;
}

std::string deflated(const std::string& plain) {
  uLongf size = compressBound(plain.size());
  std::string out(size, '\0');
  const int code = compress2(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(plain.data()),
                             plain.size(), 6);
  SHARDSCOPE_CHECK(code == Z_OK, std::to_string(code));
  out.resize(size);
  return out;
}

std::string inflated(const std::string& bytes, std::size_t from, std::uint64_t length) {
  std::string out(length, '\0');
  uLongf size = length;
  const int code = uncompress(reinterpret_cast<Bytef*>(out.data()), &size,
                              reinterpret_cast<const Bytef*>(bytes.data() + from), bytes.size() - from);
  if (code != Z_OK || size != length) damaged();
  return out;
}

}  // namespace

// format, plain length, deflate of: count, then per span id, rank, step, lane, kind, unit, pass, begin (difference to
// the span before), begin - issued, end - begin, bytes, number of waits, waits (id - wait).
std::string encode_spans(const std::vector<fsdp::Span>& spans) {
  std::string plain;
  put(plain, spans.size());
  fsdp::Nanos last = 0;
  for (const fsdp::Span& s : spans) {
    put(plain, s.id);
    put_signed(plain, s.rank);
    put_signed(plain, s.step);
    put(plain, static_cast<std::uint64_t>(s.lane));
    put(plain, static_cast<std::uint64_t>(s.kind));
    put_signed(plain, s.unit);
    put(plain, static_cast<std::uint64_t>(s.pass));
    put_signed(plain, minus(s.begin, last));
    put_signed(plain, minus(s.begin, s.issued));
    put_signed(plain, minus(s.end, s.begin));
    put_signed(plain, s.bytes);
    put(plain, s.waits.size());
    for (const std::uint32_t w : s.waits) put_signed(plain, static_cast<std::int64_t>(s.id) - w);
    last = s.begin;
  }
  std::string out;
  put(out, kFormat);
  put(out, plain.size());
  return out + deflated(plain);
}

std::vector<fsdp::Span> decode_spans(const std::string& bytes) {
  Reader head{bytes};
  if (head.get() != kFormat) damaged();
  const std::uint64_t length = head.get();
  if (length > kLargest || length > (bytes.size() + 64) * kLargestRatio) damaged();
  const std::string plain = inflated(bytes, head.at, length);
  Reader in{plain};
  const std::uint64_t count = in.get();
  if (count > length / kLeastOfSpan) damaged();
  std::vector<fsdp::Span> spans(count);
  fsdp::Nanos last = 0;
  for (fsdp::Span& s : spans) {
    const std::uint64_t id = in.get();
    if (!std::in_range<std::uint32_t>(id)) damaged();
    s.id = static_cast<std::uint32_t>(id);
    s.rank = in.get_as<std::int32_t>();
    s.step = in.get_as<std::int32_t>();
    s.lane = in.get_enum(fsdp::Lane::kAllReduce);
    s.kind = in.get_enum(fsdp::SpanKind::kStep);
    s.unit = in.get_as<fsdp::UnitId>();
    s.pass = in.get_enum(fsdp::Pass::kOptimizer);
    s.begin = sum_of(last, in.get_signed());
    s.issued = difference_of(s.begin, in.get_signed());
    s.end = sum_of(s.begin, in.get_signed());
    s.bytes = in.get_signed();
    const std::uint64_t waits = in.get();
    if (waits > plain.size() - in.at) damaged();
    s.waits.resize(waits);
    for (std::uint32_t& w : s.waits) {
      const fsdp::Nanos other = difference_of(s.id, in.get_signed());
      if (!std::in_range<std::uint32_t>(other)) damaged();
      w = static_cast<std::uint32_t>(other);
    }
    last = s.begin;
  }
  if (in.at != plain.size()) damaged();
  return spans;
}

}  // namespace harness
