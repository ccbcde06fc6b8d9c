#include "harness/trial/run_store.h"

#include <nlohmann/json.hpp>

#include "fsdp/core/errors.h"

namespace harness {
namespace {
using Json = nlohmann::json;
constexpr std::size_t kLongestKey = 512, kLongestValue = std::size_t{1} << 20, kMostKeys = 1'000'000;

bool begins(const std::string& line, const char* kind) { return line.rfind(std::string("{\"") + kind + "\":", 0) == 0; }

std::string hex_of(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string bytes_of(const std::string& text) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes += static_cast<char>(digit(text[i]) << 4 | digit(text[i + 1]));
  return bytes;
}

std::vector<std::string> words_of(const std::string& line, const char* kind) {
  try {
    return Json::parse(line).at(kind).get<std::vector<std::string>>();
  } catch (const Json::exception& e) {
    throw fsdp::CommError("[trial] a line for the store cannot be read (" + std::string(e.what()) +
                          "): " + line.substr(0, 200));
  }
}

std::string line_of(const char* kind, const std::vector<std::string>& words) {
  return Json{{kind, words}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}
}  // namespace

std::optional<std::vector<RunStore::Answer>> RunStore::take(int rank, const std::string& line) {
  if (!begins(line, "store")) return std::nullopt;
  const std::vector<std::string> words = words_of(line, "store");
  const bool sets = words.size() == 3 && words[0] == "set", awaits = words.size() == 2 && words[0] == "await";
  if ((!sets && !awaits) || words[1].size() > kLongestKey || words.back().size() > kLongestValue ||
      entries_.size() >= kMostKeys)
    throw fsdp::CommError("[trial] rank " + std::to_string(rank) +
                          " asks the store for what it does not do: " + line.substr(0, 200));
  Entry& entry = entries_[words[1]];
  std::vector<Answer> answers;
  if (awaits) {
    if (entry.value) {
      answers.push_back({rank, line_of("stored", {words[1], *entry.value})});
    } else {
      entry.waiting.insert(rank);
    }
  } else if (!entry.value) {
    entry.value = words[2];
    for (const int r : entry.waiting) answers.push_back({r, line_of("stored", {words[1], *entry.value})});
    entry.waiting.clear();
  }
  return answers;
}

void LeaderRendezvous::set(const std::string& key, const std::string& value) {
  send_(line_of("store", {"set", key, hex_of(value)}));
}

std::shared_ptr<const fsdp::Awaited> LeaderRendezvous::await(const std::string& key) {
  std::shared_ptr<fsdp::Awaited> awaited;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<fsdp::Awaited>& entry = awaited_[key];
    if (entry) return entry;
    entry = awaited = std::make_shared<fsdp::Awaited>();
  }
  send_(line_of("store", {"await", key}));
  return awaited;
}

bool LeaderRendezvous::take(const std::string& line) {
  if (!begins(line, "stored")) return false;
  const std::vector<std::string> words = words_of(line, "stored");
  if (words.size() != 2) throw fsdp::CommError("[trial] a line of the store cannot be read: " + line.substr(0, 200));
  const std::lock_guard lock(mutex_);
  if (const auto entry = awaited_.find(words[0]); entry != awaited_.end()) entry->second->give(bytes_of(words[1]));
  return true;
}

}  // namespace harness
