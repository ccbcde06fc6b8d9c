#include "harness/trial/run_secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "fsdp/core/errors.h"
#include "harness/sweep/text.h"
#include "harness/trial/handshake.h"
#include "harness/trial/line_socket.h"

namespace harness {
namespace {

constexpr std::size_t kFewest = 16;  // characters: fewer can be guessed by who hears a handshake
constexpr mode_t kOthers = 077;

std::string value(const EnvironmentMap& e, const std::string& name) {
  const auto found = e.find(name);
  return found == e.end() ? "" : found->second;
}

void check_length(const std::string& secret, const std::string& where) {
  if (secret.size() < kFewest)
    throw fsdp::ConfigError(
        fmt::format("[launch] the secret in {} has {} characters, and at least {} are needed; "
                    "`openssl rand -hex 32` makes a good one",
                    where, secret.size(), kFewest));
}

// The first line. Empty: errno.
std::string first_line_of(int fd) {
  std::array<char, 4096> buffer{};
  const ssize_t n = read(fd, buffer.data(), buffer.size());
  const std::string text(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(0, n)));
  return trim(text.substr(0, text.find('\n')));
}

// What is wrong with a file for a secret; empty: nothing.
std::string fault_of(int fd) {
  struct stat s {};
  if (fstat(fd, &s) != 0) return std::strerror(errno);
  if (!S_ISREG(s.st_mode)) return "it is no file";
  if (s.st_uid != geteuid()) return "it belongs to somebody else; make one of your own";
  if ((s.st_mode & kOthers) != 0) return "others may read it; chmod 600 it, and make a new secret";
  return "";
}

Fd folder_of_mine(const std::string& path) {
  Fd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat s {};
  if (folder.open() && (fstat(folder.get(), &s) != 0 || s.st_uid != geteuid() || (s.st_mode & kOthers) != 0))
    folder.reset();
  return folder;
}

// A folder that is this user's alone: of the session, else of the temporary directory.
Fd private_folder(const EnvironmentMap& e, std::string& path) {
  const std::string session = value(e, "XDG_RUNTIME_DIR");
  if (!session.empty() && folder_of_mine(session).open()) {
    path = session + "/shardscope";
  } else {
    const std::string temporary = value(e, "TMPDIR");
    path = fmt::format("{}/shardscope-{}", temporary.empty() ? "/tmp" : temporary, geteuid());
  }
  mkdir(path.c_str(), 0700);
  Fd folder = folder_of_mine(path);
  if (!folder.open())
    throw fsdp::EnvironmentError(
        fmt::format("[launch] {} is no folder of mode 700 that belongs to you, and the ranks keep their secret there; "
                    "remove it, or set {}",
                    path, kSecretVariable));
  return folder;
}

// Whole under another name first: all ranks of the host start at once, and the first one's file stays.
void make_secret(int folder) {
  const std::string name = "secret." + random_hex().substr(0, 16), text = random_hex() + "\n";
  Fd file(openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.open()) return;
  if (write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()))
    linkat(folder, name.c_str(), folder, "secret", 0);
  unlinkat(folder, name.c_str(), 0);
}
}  // namespace

std::string secret_of_file(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const std::string fault = file.open() ? fault_of(file.get()) : std::strerror(errno);
  if (!fault.empty())
    throw fsdp::ConfigError(
        fmt::format("[launch] the file of {}, {}, cannot hold a secret: {}", kSecretFileVariable, path, fault));
  const std::string secret = first_line_of(file.get());
  check_length(secret, path);
  return secret;
}

std::string users_secret(const EnvironmentMap& e) {
  std::string path;
  const Fd folder = private_folder(e, path);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Fd file(openat(folder.get(), "secret", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (file.open() && fault_of(file.get()).empty()) {
      const std::string secret = first_line_of(file.get());
      if (secret.size() >= kFewest) return secret;
    }
    make_secret(folder.get());
  }
  throw fsdp::EnvironmentError(
      fmt::format("[launch] {}/secret can be neither read nor made, and the ranks prove with it that they are yours; "
                  "remove it, or set {}",
                  path, kSecretVariable));
}

std::string run_secret(const RankPlace& place, const EnvironmentMap& e) {
  if (const std::string given = value(e, kSecretVariable); !given.empty()) {
    check_length(given, kSecretVariable);
    return given;
  }
  if (const std::string path = value(e, kSecretFileVariable); !path.empty()) return secret_of_file(path);
  if (on_one_host(place)) return users_secret(e);
  throw fsdp::ConfigError(fmt::format(
      "[launch] ranks on several hosts prove to each other that they know one secret, and none is set; on a file "
      "system "
      "that all hosts see: (umask 077; openssl rand -hex 32 > ~/.shardscope-secret), then for every rank export "
      "{}=~/.shardscope-secret{}",
      kSecretFileVariable, place.contract == "mpi" ? " (Open MPI: -x SHARDSCOPE_SECRET_FILE)" : ""));
}

}  // namespace harness
