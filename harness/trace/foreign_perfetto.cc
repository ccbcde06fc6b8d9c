#include "harness/trace/foreign_perfetto.h"

#include <algorithm>

#include "harness/trace/json_text.h"

namespace harness {

using fsdp::Nanos;

namespace {
constexpr int kPartitionThread = 1;
constexpr int kLanesPerStream = 10;  // slices that overlap in one stream go to the lanes below
}  // namespace

ForeignPerfetto::ForeignPerfetto(const std::string& path) : file_(path) {
  file_.write("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
}

void ForeignPerfetto::begin_row(const std::string& name, Nanos shift) {
  ++pid_;
  shift_ = shift;
  lanes_.clear();
  streams_.clear();
  block_ +=
      "{\"ph\":\"M\",\"pid\":" + std::to_string(pid_) + ",\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":";
  append_json_string(block_, name);
  block_ += "}},\n";
  name_thread(kPartitionThread, "partition of the step", 0);
}

void ForeignPerfetto::name_thread(int tid, const std::string& name, int sort) {
  const std::string who = "{\"ph\":\"M\",\"pid\":" + std::to_string(pid_) + ",\"tid\":" + std::to_string(tid);
  block_ += who + ",\"name\":\"thread_name\",\"args\":{\"name\":";
  append_json_string(block_, name);
  block_ +=
      "}},\n" + who + ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":" + std::to_string(sort) + "}},\n";
}

void ForeignPerfetto::slice(int tid, Nanos begin, Nanos end, std::string_view name, std::string_view category) {
  if (!has_base_) base_ = begin + shift_, has_base_ = true;
  block_ += "{\"ph\":\"X\",\"pid\":" + std::to_string(pid_) + ",\"tid\":" + std::to_string(tid) + ",\"ts\":";
  append_micros(block_, begin + shift_ - base_);
  block_ += ",\"dur\":";
  append_micros(block_, end - begin);
  (block_ += ",\"cat\":\"").append(category) += "\",\"name\":";
  append_json_string(block_, name);
  if (block_.size() > (1u << 20)) file_.write(block_), block_.clear();
}

void ForeignPerfetto::add(const DeviceOp& op, const std::string& name, const std::string& unit) {
  auto [it, fresh] = streams_.try_emplace(op.stream, kLanesPerStream * (1 + static_cast<int>(streams_.size())));
  int lane = 0;
  while (lane + 1 < kLanesPerStream && lanes_.contains({op.stream, lane}) && lanes_[{op.stream, lane}] > op.begin)
    ++lane;
  if (lanes_.try_emplace({op.stream, lane}, op.begin).second) {
    const std::string label =
        "stream " + std::to_string(op.stream) + (lane > 0 ? " (overlap " + std::to_string(lane) + ")" : "");
    name_thread(it->second + lane, label, it->second + lane);
  }
  lanes_[{op.stream, lane}] = std::max(lanes_[{op.stream, lane}], op.end);
  static constexpr std::string_view kCategories[] = {"compute", "optimizer", "communication", "copy"};
  slice(it->second + lane, op.begin, op.end, name, kCategories[static_cast<int>(op.cls)]);
  block_ += ",\"args\":{\"stream\":" + std::to_string(op.stream) + ",\"correlation\":" + std::to_string(op.correlation);
  if (!unit.empty()) {
    block_ += ",\"unit\":";
    append_json_string(block_, unit);
  }
  if (op.pass != fsdp::Pass::kNone) (block_ += ",\"pass\":\"").append(fsdp::name_of(op.pass)) += '"';
  block_ += "}},\n";
}

void ForeignPerfetto::add_piece(PartitionClass cls, Nanos begin, Nanos end, const std::string& owner) {
  std::string name(name_of(cls));
  if (!owner.empty()) name += " " + owner;
  slice(kPartitionThread, begin, end, name, "partition");
  block_ += "},\n";
}

void ForeignPerfetto::close() {
  file_.write(block_ + "{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"trace_end\",\"args\":{}}\n]}\n");
  file_.close();
}

}  // namespace harness
