#include "harness/sweep/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "fsdp/core/errors.h"
#include "harness/analysis/statistics.h"
#include "harness/store/whole_file.h"

namespace harness {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHead = "case,round,started_at,steal,load,sample_ns,repetitions_ns\r";

std::string line_of(const std::string& id, std::size_t round, const CaseRecord& r) {
  const auto field = [&](const char* name) {
    const auto found = r.environment.find(name);
    return found == r.environment.end() ? std::string() : found->second;
  };
  return fmt::format("{},{},{},{},{},{},{}\r", id, round, r.started_at, field("machine.steal"), field("machine.load"),
                     undisturbed(r.samples), fmt::join(r.samples, " "));
}

// Without the head; whole lines but for their last newline. None where there is no table.
std::vector<std::string> lines_of(const fs::path& table) {
  std::vector<std::string> lines;
  std::error_code error;
  const bool absent = fs::status(table, error).type() == fs::file_type::not_found;
  if (absent) return lines;
  std::ifstream in(table);
  const bool opened = in.is_open();
  for (std::string line; std::getline(in, line);)
    if (line != kHead) lines.push_back(line);
  if (opened && !in.bad()) return lines;
  throw fsdp::ConfigError(fmt::format(
      "[{}] is there and cannot be read, so that its rounds would be lost; make it readable, or move it away",
      table.string()));
}

fs::path place_of(const std::string& directory) { return fs::path(directory) / "rounds"; }

}  // namespace

bool RoundsKept::exists(const std::string& directory) { return fs::exists(fs::symlink_status(place_of(directory))); }

// A link in the place of the folder is refused.
RoundsKept::RoundsKept(const std::string& directory, sqlite::GoOnWaiting wait)
    : results_(directory),
      directory_(fsdp::Folder::make(directory).inner("rounds").path()),
      store_(Store::open_for_writing(directory_, std::move(wait))) {
  for (std::string& name : store_->finished_ids()) {
    if (name.ends_with("@0")) cases_.push_back(name.substr(0, name.size() - 2));
    names_.insert(std::move(name));
  }
}

std::vector<CaseRecord> RoundsKept::read(const std::string& id) {
  std::vector<CaseRecord> rounds;
  for (std::string name = name_of(id, 0); names_.count(name) != 0; name = name_of(id, rounds.size())) {
    rounds.push_back(store_->read_case(name));
    rounds.back().id = id;
  }
  return rounds;
}

void RoundsKept::write(const std::string& id, std::size_t round, CaseRecord r) {
  r.id = name_of(id, round);
  store_->write_case(r);
  if (names_.insert(r.id).second && round == 0) cases_.push_back(id);
}

void RoundsKept::move_to_table() {
  const fsdp::Folder results = fsdp::Folder::open(results_);
  std::vector<std::string> lines = lines_of(results.path_of("rounds.csv"));
  for (const std::string& id : cases_) {
    std::erase_if(lines, [&](const std::string& line) { return line.starts_with(id + ","); });
    const std::vector<CaseRecord> rounds = read(id);
    for (std::size_t i = 0; i < rounds.size(); ++i) lines.push_back(line_of(id, i, rounds[i]));
  }
  // The disk has the table before the rounds go.
  if (!cases_.empty()) write_file(results, "rounds.csv", fmt::format("{}\n{}\n", kHead, fmt::join(lines, "\n")));
  store_.reset();
  fs::remove_all(directory_);
  results.sync();
}

}  // namespace harness
