#include "harness/trial/join_messages.h"

#include <nlohmann/json.hpp>

#include "fsdp/core/errors.h"
#include "harness/trial/line_numbers.h"

namespace harness {
namespace {
using Json = nlohmann::json;

// These are the ranges of a line's numbers. A process is looked at, and ended when it is stopped: no number stands for
// a group.
constexpr Range kRanks{0, kMostInt}, kLocalRanks{-1, kMostInt}, kProcesses{0, kMostInt};
constexpr Range kTicks{0, std::int64_t{1} << 56}, kWaitStatuses{-kMostInt, kMostInt}, kExitCodes{0, 255};

std::int64_t whole(const Json& j, const char* what, Range r) { return whole_number(j, "launch", what, r); }
int whole_int(const Json& j, const char* what, Range r) { return static_cast<int>(whole(j, what, r)); }

std::string line_of(const char* kind, Json content) {
  Json j;
  j[kind] = std::move(content);
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The content of a line of this kind. Only the beginning of other lines is looked at: results are long.
std::optional<Json> content_of(const char* kind, const std::string& line) {
  if (line.rfind(std::string("{\"") + kind + "\":", 0) != 0) return std::nullopt;
  try {
    return Json::parse(line).at(kind);
  } catch (const Json::exception& e) {
    throw fsdp::CommError("[launch] a line of another rank cannot be read (" + std::string(e.what()) +
                          "): " + line.substr(0, 200));
  }
}

template <typename T, typename Read>
std::optional<T> read(const char* kind, const std::string& line, Read fill) {
  const auto j = content_of(kind, line);
  if (!j) return std::nullopt;
  try {
    T value{};
    fill(*j, value);
    return value;
  } catch (const Json::exception& e) {
    throw fsdp::CommError(std::string("[launch] \"") + kind + "\" of another rank is not complete: " + e.what());
  }
}
}  // namespace

std::string to_json_line(const RankPreparation& p) {
  return line_of("prepare", {{"shared_memory", p.shared_memory},
                             {"interface", p.interface},
                             {"leader_pid", p.leader_pid},
                             {"leader_host", p.leader_host}});
}
std::optional<RankPreparation> preparation_from_json(const std::string& line) {
  return read<RankPreparation>("prepare", line, [](const Json& j, RankPreparation& p) {
    p.shared_memory = j.at("shared_memory");
    p.interface = j.at("interface");
    p.leader_pid = whole(j.at("leader_pid"), "leader_pid", kProcesses);
    p.leader_host = j.at("leader_host");
  });
}

std::string to_json_line(const Hello& h) {
  const RankIdentity& i = h.identity;
  return line_of("hello", {{"interface", h.interface},
                           {"rank", i.rank},
                           {"host", i.host},
                           {"pid", i.pid},
                           {"local_rank", i.local_rank},
                           {"device", i.device},
                           {"settings_hash", i.settings_hash},
                           {"settings", i.settings},
                           {"version", i.version}});
}
Hello hello_from_json(const std::string& line) {
  const auto hello = read<Hello>("hello", line, [](const Json& j, Hello& h) {
    h.interface = j.at("interface");
    h.identity.rank = whole_int(j.at("rank"), "rank", kRanks);
    h.identity.host = j.at("host");
    h.identity.pid = whole(j.at("pid"), "pid", kProcesses);
    h.identity.local_rank = whole_int(j.at("local_rank"), "local_rank", kLocalRanks);
    h.identity.device = j.at("device");
    h.identity.settings_hash = j.at("settings_hash");
    h.identity.settings = j.at("settings").get<std::vector<std::pair<std::string, std::string>>>();
    h.identity.version = j.at("version");
  });
  if (!hello) throw fsdp::CommError("[launch] no rank of a shardscope: " + line.substr(0, 100));
  return *hello;
}

std::string seen_line(const ProcessSight& s) {
  return line_of("seen", {{"known", s.known}, {"stopped", s.stopped}, {"ticks", s.ticks}});
}
std::optional<ProcessSight> seen_from_json(const std::string& line) {
  return read<ProcessSight>("seen", line, [](const Json& j, ProcessSight& s) {
    s.known = j.at("known");
    s.stopped = j.at("stopped");
    s.ticks = whole(j.at("ticks"), "ticks", kTicks);
  });
}

std::string to_json_line(const RankEnd& e) {
  return line_of("ended", {{"status", e.wait_status}, {"host_oom", e.host_oom}, {"log", e.log}});
}
std::optional<RankEnd> rank_end_from_json(const std::string& line) {
  return read<RankEnd>("ended", line, [](const Json& j, RankEnd& e) {
    e.wait_status = whole_int(j.at("status"), "status", kWaitStatuses);
    e.host_oom = j.at("host_oom");
    e.log = j.at("log");
  });
}

std::string refusal_line(const std::string& text) { return line_of("refused", text); }
std::optional<std::string> refusal_from_json(const std::string& line) {
  return read<std::string>("refused", line, [](const Json& j, std::string& text) { text = j; });
}
std::string end_line(int exit_code) { return line_of("end", exit_code); }
std::optional<int> end_from_json(const std::string& line) {
  return read<int>("end", line, [](const Json& j, int& code) { code = whole_int(j, "the exit code", kExitCodes); });
}

}  // namespace harness
