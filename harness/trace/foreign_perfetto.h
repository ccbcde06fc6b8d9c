// Writes a trace made elsewhere again, for people to look at: one process per device, one thread per stream, and on top
// what each instant is (the partition). Times of several ranks are on the first rank's clock.
#pragma once
#include <map>
#include <string>

#include "harness/analysis/foreign_partition.h"
#include "harness/trace/output_file.h"

namespace harness {

class ForeignPerfetto {
 public:
  explicit ForeignPerfetto(const std::string& path);

  // Begins the next device. `shift` is added to every time.
  void begin_row(const std::string& name, fsdp::Nanos shift);
  void add(const DeviceOp& op, const std::string& name, const std::string& unit);
  void add_piece(PartitionClass cls, fsdp::Nanos begin, fsdp::Nanos end, const std::string& owner);
  void close();

 private:
  void name_thread(int tid, const std::string& name, int sort);
  void slice(int tid, fsdp::Nanos begin, fsdp::Nanos end, std::string_view name, std::string_view category);

  OutputFile file_;
  std::string block_;
  int pid_ = 0;
  fsdp::Nanos shift_ = 0, base_ = 0;
  bool has_base_ = false;
  std::map<std::pair<int, int>, fsdp::Nanos> lanes_;  // (stream, lane) -> end of its last slice
  std::map<std::int32_t, int> streams_;               // stream -> first thread
};

}  // namespace harness
