#include "fsdp/comm/rendezvous.h"

#include <chrono>
#include <utility>

#include "fsdp/comm/rendezvous_store.h"
#include "fsdp/core/errors.h"

namespace fsdp {
namespace {

std::vector<std::uint8_t> bytes_of(const std::string& s) { return {s.begin(), s.end()}; }

// The first line: LibTorch appends stack traces.
std::string first_line(const char* text) {
  const std::string all = text;
  return all.substr(0, all.find('\n'));
}

}  // namespace

Rendezvous::Rendezvous(const Options& options) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  c10d::TCPStoreOptions o;
  o.port = static_cast<std::uint16_t>(options.port);
  o.isServer = options.rank == 0 && options.serves;
  o.waitWorkers = false;
  if (o.isServer && options.listen_fd >= 0) o.masterListenFd = options.listen_fd;
  o.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(options.timeout));
  const std::string where = options.host + ":" + std::to_string(options.port);
  try {
    impl_->store = c10::make_intrusive<c10d::TCPStore>(options.host, o);
  } catch (const std::exception& e) {
    if (o.isServer) {
      throw EnvironmentError("[rendezvous] cannot serve at " + where + ": " + first_line(e.what()) +
                             "; choose another port");
    }
    throw CommError("[rendezvous] rank " + std::to_string(options.rank) + " cannot reach rank 0 at " + where + ": " +
                    first_line(e.what()) + "; is rank 0 running there?");
  }
}

Rendezvous::~Rendezvous() = default;

int Rendezvous::port() const { return impl_->store->getPort(); }
const std::string& Rendezvous::host() const { return impl_->options.host; }

void Rendezvous::set(const std::string& key, const std::string& value) { impl_->store->set(key, bytes_of(value)); }

std::string Rendezvous::set_once(const std::string& key, const std::string& value) {
  const auto held = impl_->store->compareSet(key, {}, bytes_of(value));
  return {held.begin(), held.end()};
}

bool Rendezvous::has(const std::string& key) { return impl_->store->check({key}); }

std::string Rendezvous::get(const std::string& key) {
  try {
    const auto value = impl_->store->get(key);
    return {value.begin(), value.end()};
  } catch (const std::exception& e) {
    throw TimeoutError("[rendezvous] nobody has set '" + key + "': " + first_line(e.what()) +
                       "; look for a rank that is missing");
  }
}

}  // namespace fsdp
