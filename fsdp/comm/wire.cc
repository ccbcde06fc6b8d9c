#include "fsdp/comm/wire.h"

#include <string>
#include <utility>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"

namespace fsdp {

Nanos wire_time(const CollectiveCall& call, int world, const Wire& wire) {
  if (world <= 1) return 0;
  const auto bytes_per_second = static_cast<std::int64_t>(wire.bytes_per_second);
  SHARDSCOPE_CHECK(bytes_per_second > 0, std::to_string(bytes_per_second));
  // Bytes times W, so that the division comes last; 128 bits hold 1 EiB times 1e9 times 1e6 ranks.
  __extension__ using Wide = __int128;
  const Wide count_bytes = static_cast<Wide>(call.count) * size_of(call.in_dtype);
  Wide bytes_times_world = 0;
  switch (call.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
      bytes_times_world = count_bytes * (world - 1) * world;
      break;
    case CollectiveKind::kAllReduce:
      bytes_times_world = 2 * count_bytes * (world - 1);
      break;
    case CollectiveKind::kBroadcast:
      bytes_times_world = count_bytes * world;
      break;
    case CollectiveKind::kBarrier:
      break;
  }
  return wire.latency +
         static_cast<Nanos>(bytes_times_world * 1'000'000'000 / (static_cast<Wide>(world) * bytes_per_second));
}

EmulatedWire::EmulatedWire(std::unique_ptr<Transport> inner, const Wire& wire) : inner_(std::move(inner)), wire_(wire) {
  if (wire.latency < 0 || wire.bytes_per_second < 1) {
    throw ConfigError("[wire] latency " + std::to_string(wire.latency) + " ns, bandwidth " +
                      std::to_string(wire.bytes_per_second) +
                      " B/s; give a latency >= 0 and a bandwidth of at least 1 B/s");
  }
}

Nanos EmulatedWire::run(const CollectiveCall& call) {
  const Nanos arrival = inner_->run(call);
  if (const Nanos t = wire_time(call, world(), wire_); t > 0) sleep_until(arrival + t);
  return arrival;
}

}  // namespace fsdp
