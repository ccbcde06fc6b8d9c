#include "fsdp/comm/host_collectives.h"

#include <exception>

#include "fsdp/core/errors.h"

namespace fsdp {
namespace {

SpanKind span_kind(CollectiveKind k) {
  switch (k) {
    case CollectiveKind::kAllGather:
      return SpanKind::kAllGather;
    case CollectiveKind::kReduceScatter:
      return SpanKind::kReduceScatter;
    case CollectiveKind::kAllReduce:
      return SpanKind::kAllReduce;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kBarrier:
      return SpanKind::kOtherCollective;
  }
  return SpanKind::kOtherCollective;
}

}  // namespace

Bytes full_bytes(const CollectiveCall& call, int group_size) {
  const Bytes bytes = call.count * size_of(call.in_dtype);
  switch (call.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
      return bytes * group_size;
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
      return bytes;
    case CollectiveKind::kBarrier:
      return 0;
  }
  return 0;
}

WorkTag tag_of(const CollectiveCall& call, int group_size) {
  return {span_kind(call.kind), call.unit, call.pass, full_bytes(call, group_size)};
}

HostCollectives::HostCollectives(HostDevice& device, HostTransports transports)
    : device_(device), transports_(std::move(transports)), exceptions_at_birth_(std::uncaught_exceptions()) {
  if (!transports_.shard)
    throw ConfigError("[comm] no transport for the shard group; give one, of one rank if need be");
  if (transports_.replica && !transports_.world) {
    throw ConfigError("[comm] replicas need a transport of the whole world; give one");
  }
  if (!device_.shared_channel() && !transports_.reduce_scatter) {
    throw ConfigError(
        "[comm] a reduce-scatter thread needs a communicator of its own; give one, or use a shared channel");
  }
}

HostCollectives::~HostCollectives() {
  const bool unwinding = std::uncaught_exceptions() > exceptions_at_birth_;
  if (unwinding || !device_.idle()) abort("it stopped in the middle of its work");
  device_.cancel();
}

int HostCollectives::rank() const { return world_transport().rank(); }
int HostCollectives::world() const { return world_transport().world(); }

int HostCollectives::group_size(Communicator c) const {
  const Transport* t = transport_of(c);
  return t != nullptr ? t->world() : 1;
}

Transport* HostCollectives::transport_of(Communicator c) const {
  switch (c) {
    case Communicator::kShard:
      return transports_.shard.get();
    case Communicator::kReduceScatter:
      return transports_.reduce_scatter ? transports_.reduce_scatter.get() : transports_.shard.get();
    case Communicator::kReplica:
      return transports_.replica.get();
    case Communicator::kWorld:
      return &world_transport();
    case Communicator::kRegather:
      return transports_.regather.get();
  }
  return nullptr;
}

void HostCollectives::enqueue(Lane lane, const CollectiveCall& call) {
  Transport* transport = transport_of(call.communicator);
  SHARDSCOPE_CHECK(transport != nullptr, "communicator " + std::to_string(static_cast<int>(call.communicator)));
  const int channel = device_.channel_of(lane);
  for (std::size_t c = 0; c < channel_of_.size(); ++c) {
    if (transport_of(static_cast<Communicator>(c)) != transport) continue;
    SHARDSCOPE_CHECK(channel_of_[c] < 0 || channel_of_[c] == channel, "lane " + std::string(name_of(lane)));
    channel_of_[c] = channel;
  }
  device_.submit(lane, tag_of(call, transport->world()), [this, transport, call] { return run(*transport, call); });
}

Nanos HostCollectives::run(Transport& transport, const CollectiveCall& call) {
  try {
    return transport.run(call);
  } catch (const std::exception& e) {
    abort(e.what());
    throw;
  }
}

std::vector<std::uint64_t> HostCollectives::exchange(std::uint64_t value) {
  device_.drain();
  try {
    if (transports_.world) transports_.shard->exchange(value);
    return world_transport().exchange(value);
  } catch (const std::exception& e) {
    abort(e.what());
    throw;
  }
}

void HostCollectives::abort(const std::string& reason) noexcept {
  for (const auto& t : {&transports_.shard, &transports_.reduce_scatter, &transports_.replica, &transports_.world,
                        &transports_.regather}) {
    if (*t) (*t)->abort(reason);
  }
}

}  // namespace fsdp
