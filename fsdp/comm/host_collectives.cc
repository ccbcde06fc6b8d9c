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

std::string name_of(Communicator c) {
  if (c == Communicator()) return "world";
  std::string size;
  if (c.ranks > 0) size.append(".").append(std::to_string(c.ranks));
  switch (c.role) {
    case Communicator::kShard:
      return "shard" + size;
    case Communicator::kReduceScatter:
      return "reduce_scatter" + size;
    case Communicator::kReplica:
      return "replica" + size;
  }
  return "?";
}

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
    : device_(device), exceptions_at_birth_(std::uncaught_exceptions()) {
  if (!transports.world) throw ConfigError("[comm] no transport of all ranks; give one, of one rank if need be");
  members_.push_back({{}, std::move(transports.world)});
  for (auto& [communicator, transport] : transports.others) members_.push_back({communicator, std::move(transport)});
}

HostCollectives::~HostCollectives() {
  const bool unwinding = std::uncaught_exceptions() > exceptions_at_birth_;
  if (unwinding || !device_.idle()) abort("it stopped in the middle of its work");
  device_.cancel();
}

void HostCollectives::enqueue(Lane lane, const CollectiveCall& call) {
  Member& member = entry_of(members_, call.communicator, &Member::communicator);
  const int channel = device_.channel_of(lane);
  SHARDSCOPE_CHECK(member.channel < 0 || member.channel == channel, "lane " + std::string(name_of(lane)));
  member.channel = channel;
  Transport* const transport = member.transport.get();
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
    for (const Member& m : members_)
      if (m.communicator.is_group()) m.transport->exchange(value);
    return everybody().exchange(value);
  } catch (const std::exception& e) {
    abort(e.what());
    throw;
  }
}

void HostCollectives::abort(const std::string& reason) noexcept {
  for (const Member& m : members_) m.transport->abort(reason);
}

}  // namespace fsdp
