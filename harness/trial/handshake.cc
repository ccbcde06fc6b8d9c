#include "harness/trial/handshake.h"

#include <sodium.h>

#include <array>
#include <nlohmann/json.hpp>

#include "fsdp/core/errors.h"

namespace harness {
namespace {
using Json = nlohmann::json;

void start_library() {
  static const int state = sodium_init();
  if (state < 0) throw fsdp::EnvironmentError("[launch] the system gives no random bytes; look at /dev/urandom");
}

template <std::size_t kBytes>
std::string hex_of(const std::array<unsigned char, kBytes>& bytes) {
  std::string text(2 * kBytes + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), bytes.data(), bytes.size());
  text.pop_back();
  return text;
}

// Every part with its length: no two lists of parts give one text.
std::string joined(std::initializer_list<std::string> parts) {
  std::string all;
  for (const std::string& part : parts) all += std::to_string(part.size()) + ":" + part + ",";
  return all;
}

SessionKeys session_keys(const std::string& secret, const std::string& run, const std::string& knock,
                         const std::string& challenge) {
  const std::string session = keyed_hash(secret, joined({"session", run, knock, challenge}));
  return {keyed_hash(session, "rank"), keyed_hash(session, "leader")};
}

std::string line_of(const char* kind, const std::string& text) { return Json{{kind, text}}.dump(); }

// The text of a line of this kind; empty: it is another one.
std::string text_of(const char* kind, const std::string& line) {
  const Json j = Json::parse(line, nullptr, false);
  if (!j.is_object() || j.size() != 1 || !j.contains(kind) || !j.at(kind).is_string()) return {};
  const auto text = j.at(kind).get<std::string>();
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos ? text : std::string();
}
}  // namespace

std::string random_hex() {
  start_library();
  std::array<unsigned char, 32> bytes{};
  randombytes_buf(bytes.data(), bytes.size());
  return hex_of(bytes);
}

std::string keyed_hash(const std::string& key, const std::string& text) {
  start_library();
  crypto_auth_hmacsha256_state state;
  std::array<unsigned char, crypto_auth_hmacsha256_BYTES> hash{};
  crypto_auth_hmacsha256_init(&state, reinterpret_cast<const unsigned char*>(key.data()), key.size());
  crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  crypto_auth_hmacsha256_final(&state, hash.data());
  return hex_of(hash);
}

bool same_secret_text(const std::string& a, const std::string& b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::optional<std::string> LeaderHandshake::answer(const std::string& line) {
  if (!knocked()) {
    knock_ = text_of("knock", line);
    if (!knocked()) return std::nullopt;
    challenge_ = random_hex();
    return line_of("challenge", challenge_);
  }
  const std::string proof = text_of("proof", line);
  if (proven_ || !same_secret_text(proof, keyed_hash(secret_, joined({"rank", run_, knock_, challenge_}))))
    return std::nullopt;
  proven_ = true;
  return line_of("welcome", keyed_hash(secret_, joined({"leader", run_, knock_, challenge_})));
}

SessionKeys LeaderHandshake::keys() const { return session_keys(secret_, run_, knock_, challenge_); }

bool shake_hands(LineSocket& leader, const std::string& secret, const std::string& run, fsdp::Nanos deadline) {
  leader.limit(kHandshakeLine);
  const std::string knock = random_hex();
  leader.send(line_of("knock", knock));
  std::string line;
  if (!leader.next(line, deadline)) return false;
  const std::string challenge = text_of("challenge", line);
  if (challenge.empty()) return false;
  leader.send(line_of("proof", keyed_hash(secret, joined({"rank", run, knock, challenge}))));
  if (!leader.next(line, deadline)) return false;
  if (!same_secret_text(text_of("welcome", line), keyed_hash(secret, joined({"leader", run, knock, challenge}))))
    return false;
  const SessionKeys keys = session_keys(secret, run, knock, challenge);
  leader.seal(keys.of_rank, keys.of_leader);
  leader.limit(kLongestLine);
  return true;
}

}  // namespace harness
