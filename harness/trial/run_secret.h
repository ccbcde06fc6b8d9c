// What the processes of one run know and strangers do not (docs/trust.md).
#pragma once
#include <string>

#include "harness/trial/launchers.h"

namespace harness {

inline constexpr const char* kSecretVariable = "SHARDSCOPE_SECRET";
inline constexpr const char* kSecretFileVariable = "SHARDSCOPE_SECRET_FILE";

// Of the variable, else of the file that the other variable names, else, when all ranks are on this host, of a file of
// this user's own, which the first one makes. Throws fsdp::ConfigError with the command that makes one;
// fsdp::EnvironmentError when the user's file can be neither read nor made. No text of an error holds a secret.
std::string run_secret(const RankPlace& place, const EnvironmentMap& environment);

// A line of a file that belongs to this user and that nobody else may read. Throws fsdp::ConfigError.
std::string secret_of_file(const std::string& path);

// The file of this user on this host. Throws fsdp::EnvironmentError.
std::string users_secret(const EnvironmentMap& environment);

}  // namespace harness
