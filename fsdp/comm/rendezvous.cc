#include "fsdp/comm/rendezvous.h"

#include <algorithm>
#include <utility>

#include "fsdp/core/clock.h"

namespace fsdp {

std::optional<std::string> Awaited::value() const {
  const std::lock_guard lock(mutex_);
  return value_;
}

std::optional<std::string> Awaited::wait_until(Nanos deadline) const {
  const auto given = [](std::uint32_t v) { return v != 0; };
  given_.wait(given, std::max<Nanos>(0, deadline - steady_now()));
  return value();
}

void Awaited::give(std::string value) {
  {
    const std::lock_guard lock(mutex_);
    if (value_) return;
    value_ = std::move(value);
  }
  given_.store(1);
}

std::shared_ptr<Awaited> MemoryRendezvous::entry(const std::string& key) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Awaited>& e = entries_[key];
  if (!e) e = std::make_shared<Awaited>();
  return e;
}

}  // namespace fsdp
