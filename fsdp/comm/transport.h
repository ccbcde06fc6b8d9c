// Transport: blocking collectives between the ranks of one communicator, on raw host buffers. Called from lane threads,
// one call at a time per Transport. HostCollectives puts them on lanes; the emulated wire decorates them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/comm/collectives.h"
#include "fsdp/core/types.h"

namespace fsdp {

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;

  // Runs the collective to its end. Sums run in rank order in fp32, so results do not depend on timing.
  // Ranks must agree on (kind, unit, count, dtypes): a difference that the transport can see is a CommError naming both
  // sides. Throws TimeoutError after the deadline given at construction, CommError when a peer has aborted.
  // Returns when the last rank arrived (steady clock), as well as the transport can tell; own arrival otherwise.
  virtual Nanos run(const CollectiveCall& call) = 0;
  virtual std::vector<std::uint64_t> exchange(std::uint64_t value) = 0;

  virtual void* allocate(Bytes n) = 0;
  virtual void release(void* p) noexcept = 0;

  // Throws CommError or TimeoutError if a peer has given up, as far as the transport can tell without waiting. From the
  // thread that calls run().
  virtual void check() {}
  // Tells peers that this rank is gone, so that their waits end at once with `reason`. Thread-safe.
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace fsdp
