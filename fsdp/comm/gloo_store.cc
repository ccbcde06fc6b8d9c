#include "fsdp/comm/gloo_store.h"

#include <algorithm>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"

namespace fsdp {
namespace {
[[noreturn]] void not_there(const char* what) {
  throw CommError(std::string("[gloo] this LibTorch's Gloo asks its store to ") + what +
                  ", which ours does not; use the LibTorch that the program was built with");
}
}  // namespace

c10::intrusive_ptr<c10d::Store> GlooStore::clone() {
  return c10::make_intrusive<GlooStore>(rendezvous_, prefix_, deadline_);
}

std::string GlooStore::value_of(const std::string& key, Nanos deadline) {
  auto value = rendezvous_.await(prefix_ + key)->wait_until(std::min(deadline, deadline_));
  if (!value) throw TimeoutError("the wait for the address '" + key + "' timed out");
  return *std::move(value);
}

void GlooStore::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  rendezvous_.set(prefix_ + key, {value.begin(), value.end()});
}

std::vector<std::uint8_t> GlooStore::get(const std::string& key) {
  const std::string value = value_of(key, deadline_);
  return {value.begin(), value.end()};
}

bool GlooStore::check(const std::vector<std::string>& keys) {
  return std::all_of(keys.begin(), keys.end(),
                     [this](const std::string& key) { return rendezvous_.await(prefix_ + key)->value().has_value(); });
}

void GlooStore::wait(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) value_of(key, deadline_);
}

void GlooStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const Nanos deadline = steady_now() + std::chrono::nanoseconds(timeout).count();
  for (const std::string& key : keys) value_of(key, deadline);
}

std::int64_t GlooStore::add(const std::string&, std::int64_t) { not_there("count"); }
bool GlooStore::deleteKey(const std::string&) { not_there("forget"); }
std::int64_t GlooStore::getNumKeys() { not_there("count its keys"); }

}  // namespace fsdp
