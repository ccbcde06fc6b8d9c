// Traces of ranks that compute on the CPU (torch.profiler, Gloo), which hold no device: what the host did stands for
// it.
//
//   operators (aten::mm, fsdp::chunk_cat, ...), the outermost of each thread    work, a stream for each thread
//   gloo:all_gather, gloo:all_reduce, ... on Gloo's own threads                  communication in flight, and operators
//                                                                               inside are a part of it
//   c10d::_allgather_base_, ... on the step's thread                             what issued it: its unit, pass and
//   kind
//
// Calls and Gloo's ranges share no id: of each kind they are paired in order, and a range that begins before the call
// that is next was issued before the trace began. A call's time is not work: it may wait inside. Where nothing of the
// above runs, the host does something else (Python, the autograd engine).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/trace/foreign_trace.h"

namespace harness {

class HostLanes {
 public:
  // `dims`, `types`: "Input Dims" and "Input type" of the event as JSON; empty: not recorded.
  struct Event {
    std::string_view name, dims, types;
    std::int64_t process = 0, thread = 0;
    fsdp::Nanos begin = 0, end = 0;
  };
  void add_operator(ForeignTrace& trace, const Event& e);
  // A call (c10d::...) or a range of Gloo's (gloo:...); others are let pass.
  void add_collective(ForeignTrace& trace, const Event& e);
  // Makes what was added operations of one device and the calls that launched them.
  void finish(ForeignTrace& trace);

 private:
  struct Work {
    fsdp::Nanos begin, end;
    std::int64_t process;
    std::uint32_t thread, name, shape;
  };
  struct Call {
    fsdp::Nanos begin;
    std::int64_t process;
    std::uint32_t thread;
    fsdp::SpanKind kind;
    fsdp::Bytes bytes;
  };
  using Key = std::pair<std::int64_t, bool>;  // process, whether it gathers: what Gloo's ranges tell apart
  void drop_work_of_transfers();
  void add_work(ForeignTrace& trace);
  void add_transfers(ForeignTrace& trace, std::vector<Work>& ranges, std::vector<Call>& calls);
  void add(ForeignTrace& trace, const Work& work, const Call* call);

  std::vector<Work> work_;
  std::map<Key, std::vector<Work>> ranges_;
  std::map<Key, std::vector<Call>> calls_;
  std::uint64_t next_ = 1;  // correlation ids
  bool full_ = false;
};

}  // namespace harness
