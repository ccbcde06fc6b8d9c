// How two processes prove to each other that they know a run's secret, without sending it (docs/trust.md):
//
//   rank -> leader   {"knock":C}       C, L: 32 random bytes each, in hex
//   leader -> rank   {"challenge":L}
//   rank -> leader   {"proof":P}       P = HMAC-SHA256(secret, "rank", run, C, L)
//   leader -> rank   {"welcome":Q}     Q = HMAC-SHA256(secret, "leader", run, C, L)
//
// From then on both ends seal their lines (line_socket.h) with keys made of the same. `run` names the run, so that what
// is proven in one is worth nothing in another one with the same secret.
#pragma once
#include <optional>
#include <string>

#include "fsdp/core/types.h"
#include "harness/trial/line_socket.h"

namespace harness {

// No line of a handshake is longer.
inline constexpr std::size_t kHandshakeLine = 512;

struct SessionKeys {
  std::string of_rank, of_leader;  // each seals what it sends with its own
};

// 64 hexadecimal digits.
std::string random_hex();
// HMAC-SHA256 in hexadecimal digits.
std::string keyed_hash(const std::string& key, const std::string& text);
// In a time that does not depend on the content.
bool same_secret_text(const std::string& a, const std::string& b);

// The leader's side, one for each connection.
class LeaderHandshake {
 public:
  LeaderHandshake(std::string secret, std::string run) : secret_(std::move(secret)), run_(std::move(run)) {}
  // The answer to a line; std::nullopt: it is none of the ranks.
  std::optional<std::string> answer(const std::string& line);
  bool knocked() const { return !knock_.empty(); }
  bool proven() const { return proven_; }
  SessionKeys keys() const;  // REQUIRES: proven()

 private:
  std::string secret_, run_, knock_, challenge_;
  bool proven_ = false;
};

// The rank's side: false when the peer closes, says something else, does not prove its knowledge, or stays silent until
// the deadline (steady clock). The socket is sealed on success.
bool shake_hands(LineSocket& leader, const std::string& secret, const std::string& run, fsdp::Nanos deadline);

}  // namespace harness
