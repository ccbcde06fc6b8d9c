// Kineto traces written by hand, times in microseconds as text, and what the tests read them with.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "harness/trace/analyze.h"
#include "tests/testing/shell.h"
#include "tests/testing/test_data.h"

namespace harness::testing {

using testing_support::shell_word;

inline std::string data(const std::string& name) { return testing_support::test_data() + "/traces/" + name; }

inline std::string temporary(const std::string& name) {
  return ::testing::TempDir() + "shardscope-" + std::to_string(getpid()) + "-" + name;
}

inline std::string write_file(const std::string& name, const std::string& bytes) {
  const std::string path = temporary(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

inline std::string read_file(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  std::stringstream s;
  s << f.rdbuf();
  return s.str();
}

// The text of a file, decompressed if need be.
inline std::string read_text(const std::string& path) {
  gzFile f = gzopen(path.c_str(), "rb");
  std::string out;
  std::vector<char> part(1 << 20);
  for (int n; (n = gzread(f, part.data(), static_cast<unsigned>(part.size()))) > 0;)
    out.append(part.data(), static_cast<std::size_t>(n));
  gzclose(f);
  return out;
}

class KinetoText {
 public:
  std::string members =
      "\"schemaVersion\": 1, \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 0, \"world_size\": 2}";

  KinetoText& event(const std::string& json) {
    events.push_back(json);
    return *this;
  }
  KinetoText& kernel(const std::string& name, int stream, const std::string& ts, const std::string& dur,
                     int correlation = 0, const std::string& category = "kernel", int device = 0) {
    return event("{\"ph\": \"X\", \"cat\": \"" + category + "\", \"name\": \"" + name +
                 "\", \"pid\": " + std::to_string(device) + ", \"tid\": " + std::to_string(stream) + ", \"ts\": " + ts +
                 (dur.empty() ? "" : ", \"dur\": " + dur) + ", \"args\": {\"device\": " + std::to_string(device) +
                 ", \"stream\": " + std::to_string(stream) + ", \"correlation\": " + std::to_string(correlation) +
                 "}}");
  }
  KinetoText& launch(const std::string& ts, const std::string& dur, int correlation,
                     const std::string& name = "cudaLaunchKernel", int thread = 7) {
    return event("{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"" + name +
                 "\", \"pid\": 5, \"tid\": " + std::to_string(thread) + ", \"ts\": " + ts + ", \"dur\": " + dur +
                 ", \"args\": {\"correlation\": " + std::to_string(correlation) + "}}");
  }
  KinetoText& annotation(const std::string& name, const std::string& ts, const std::string& dur, int thread = 7) {
    return event("{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"" + name +
                 "\", \"pid\": 5, \"tid\": " + std::to_string(thread) + ", \"ts\": " + ts +
                 (dur.empty() ? "" : ", \"dur\": " + dur) + ", \"args\": {}}");
  }
  std::string text() const {
    std::string out = "{" + members + ", \"traceEvents\": [\n";
    for (std::size_t i = 0; i < events.size(); ++i) out += (i > 0 ? ",\n" : "") + events[i];
    return out + "\n], \"traceName\": \"by hand\"}\n";
  }
  std::string write(const std::string& name) const { return write_file(name, text()); }

  std::vector<std::string> events;
};

inline TraceAnalysis analyze(const std::vector<std::string>& paths, Convention c = Convention::kExclusive) {
  AnalyzeOptions o;
  o.paths = paths;
  o.convention = c;
  return analyze_traces(o);
}

inline nlohmann::json analyze_json(const std::vector<std::string>& paths, Convention c = Convention::kExclusive) {
  return nlohmann::json::parse(to_json(analyze(paths, c)));
}

inline fsdp::Nanos column(const ForeignStep& s, PartitionClass c) {
  return s.partition.classes[static_cast<std::size_t>(c)];
}

// "compute 11, idle 2": the classes that are not zero, in nanoseconds.
inline std::string classes(const Partition& p) {
  std::string out;
  for (int i = 0; i < kPartitionClassCount; ++i) {
    if (p[static_cast<std::size_t>(i)] == 0) continue;
    if (!out.empty()) out += ", ";
    out += std::string(name_of(static_cast<PartitionClass>(i))) + " " + std::to_string(p[static_cast<std::size_t>(i)]);
  }
  return out;
}

}  // namespace harness::testing
