// Store: DIR/results.db, the one place where a sweep's results live. One writer at a time (a lock file says who);
// readers may read while a sweep writes. A case is written in one transaction: killing the writer loses at most the
// running case; cut off from power, the case that was being written. What is read was checked (checks.h).
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "fsdp/core/files.h"
#include "harness/store/records.h"
#include "harness/store/sqlite.h"

namespace harness {

// Held while a sweep writes to a directory. Released by the destructor, or by the kernel when the process dies.
class DirectoryLock {
 public:
  // Throws fsdp::ConfigError naming the other process if the directory is being written to.
  explicit DirectoryLock(const fsdp::Folder& directory);

 private:
  fsdp::Descriptor fd_;
};

// Used from one thread. Every call may throw fsdp::ConfigError naming the file and what to do.
class Store {
 public:
  enum class Detail {
    kTables,  // without spans: what tables, curves and CSV need
    kAll,
  };

  // DIR/results.db, or the file itself. Throws when it is absent, damaged, another program's or of a newer schema.
  static Store open(const std::string& directory_or_file);
  // Makes the directory and the file where absent, and takes the lock. `wait`: how long other processes that hold the
  // database are waited for, here and in every call; then sqlite::Busy is thrown.
  static Store open_for_writing(const std::string& directory, sqlite::GoOnWaiting wait = sqlite::five_seconds);
  static bool exists(const std::string& directory);
  Store(Store&&) = default;
  ~Store();

  bool has_sweep();
  SweepRecord read_sweep();
  void write_sweep(const SweepRecord& sweep);  // replaces

  // Replaces an earlier record with the same id; the earlier attempt stays in table `trials`. The disk has it when this
  // returns.
  void write_case(const CaseRecord& record);
  // In the order of the sweep's axes; cases outside of them last, in the order they were written.
  std::vector<CaseRecord> read_cases(Detail detail = Detail::kTables);
  CaseRecord read_case(const std::string& id);  // with spans
  std::vector<fsdp::Span> read_spans(const std::string& id);
  // Every case that has a result, whatever its status, in the order they were written.
  std::vector<std::pair<std::string, Status>> statuses();
  std::vector<std::string> finished_ids();
  std::vector<std::string> traced_ids();   // of those, with spans
  std::vector<std::string> passing_ids();  // of those, ended by trouble that passes (kPassingTrouble)

 private:
  Store(sqlite::Database db, std::vector<DirectoryLock> lock) : lock_(std::move(lock)), db_(std::move(db)) {}
  std::vector<DirectoryLock> lock_;  // none or one
  sqlite::Database db_;
};

}  // namespace harness
