#include "harness/trial/launchers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "fsdp/core/errors.h"
#include "harness/sweep/text.h"

namespace harness {
namespace {

constexpr int kFirstPort = 20'000, kPorts = 12'000;  // below what systems give to outgoing connections

bool has(const EnvironmentMap& e, const std::string& name) {
  const auto found = e.find(name);
  return found != e.end() && !found->second.empty();
}

int number(const EnvironmentMap& e, const std::string& contract, const std::string& name, int least) {
  const auto n = whole_number(e.at(name));
  if (!n || *n < least || *n > 10'000'000)
    throw fsdp::ConfigError(fmt::format("[launch] {} of {} is \"{}\"; a whole number from {} on is needed", name,
                                        contract, e.at(name), least));
  return static_cast<int>(*n);
}

// All of them, or an error that names what is missing.
void require(const EnvironmentMap& e, const std::string& contract, const std::vector<std::string>& names) {
  std::string missing;
  for (const std::string& name : names)
    if (!has(e, name)) missing += (missing.empty() ? "" : ", ") + name;
  if (!missing.empty())
    throw fsdp::ConfigError(fmt::format("[launch] {} started this process without {}; start it with {}, or set {}",
                                        contract, missing, contract, names.size() > 1 ? "all of them" : "it"));
}

void take_master(RankPlace& p, const EnvironmentMap& e) {
  if (has(e, "MASTER_ADDR")) p.master_addr = e.at("MASTER_ADDR");
  if (has(e, "MASTER_PORT")) p.master_port = number(e, p.contract, "MASTER_PORT", 1);
  if (p.master_port > 65'535)
    throw fsdp::ConfigError(fmt::format("[launch] MASTER_PORT {} is above 65535; give a port", p.master_port));
}

std::string value(const EnvironmentMap& e, const std::string& name) { return has(e, name) ? e.at(name) : ""; }

int port_of(const std::string& job) { return kFirstPort + static_cast<int>(text_hash(job) % kPorts); }

// One process is no launch, whoever wrote RANK and WORLD_SIZE (a pod of a Kubeflow PyTorchJob, for instance).
bool alone(const EnvironmentMap& e) { return !has(e, "TORCHELASTIC_RUN_ID") && value(e, "WORLD_SIZE") == "1"; }

RankPlace torchrun_place(const EnvironmentMap& e) {
  if (!has(e, "TORCHELASTIC_RUN_ID") && !has(e, "LOCAL_RANK"))
    throw fsdp::ConfigError(
        "[launch] RANK and WORLD_SIZE are set as torchrun sets them, and LOCAL_RANK is not; start shardscope with "
        "torchrun, set LOCAL_RANK (0 where each host has one process), or unset RANK and WORLD_SIZE to run alone");
  require(e, "torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"});
  RankPlace p{"torchrun", number(e, "torchrun", "RANK", 0), number(e, "torchrun", "WORLD_SIZE", 1),
              number(e, "torchrun", "LOCAL_RANK", 0)};
  if (has(e, "LOCAL_WORLD_SIZE")) p.local_world = number(e, "torchrun", "LOCAL_WORLD_SIZE", 1);
  take_master(p, e);
  p.store_is_served = value(e, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  p.attempt = value(e, "TORCHELASTIC_RESTART_COUNT");
  p.run = value(e, "TORCHELASTIC_RUN_ID");
  p.one_host = p.local_world == p.world;
  return p;
}

RankPlace mpi_place(const EnvironmentMap& e) {
  const bool open_mpi = has(e, "OMPI_COMM_WORLD_RANK") || has(e, "OMPI_COMM_WORLD_SIZE");
  const std::string rank = open_mpi ? "OMPI_COMM_WORLD_RANK" : "PMI_RANK";
  const std::string world = open_mpi ? "OMPI_COMM_WORLD_SIZE" : "PMI_SIZE";
  const std::string local = open_mpi ? "OMPI_COMM_WORLD_LOCAL_RANK" : "MPI_LOCALRANKID";
  require(e, "mpirun", {rank, world});
  RankPlace p{"mpi", number(e, "mpirun", rank, 0), number(e, "mpirun", world, 1)};
  if (has(e, local)) p.local_rank = number(e, "mpirun", local, 0);
  if (open_mpi && has(e, "OMPI_COMM_WORLD_LOCAL_SIZE"))
    p.local_world = number(e, "mpirun", "OMPI_COMM_WORLD_LOCAL_SIZE", 1);
  if (!open_mpi && has(e, "MPI_LOCALNRANKS")) p.local_world = number(e, "mpirun", "MPI_LOCALNRANKS", 1);
  take_master(p, e);
  p.one_host = p.local_world == p.world;
  if (p.master_addr.empty() && p.one_host) p.master_addr = "127.0.0.1";
  p.run = value(e, "PMIX_NAMESPACE") + value(e, "OMPI_MCA_orte_hnp_uri") + value(e, "PMI_JOBID");
  if (p.master_port == 0 && !p.master_addr.empty()) p.master_port = port_of(p.run);
  return p;
}

RankPlace slurm_place(const EnvironmentMap& e) {
  const std::string world = has(e, "SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  require(e, "srun", {"SLURM_PROCID", world, "SLURM_LOCALID"});
  RankPlace p{"slurm", number(e, "srun", "SLURM_PROCID", 0), number(e, "srun", world, 1),
              number(e, "srun", "SLURM_LOCALID", 0)};
  take_master(p, e);
  p.one_host = value(e, "SLURM_STEP_NUM_NODES") == "1";
  if (p.master_addr.empty() && p.one_host) p.master_addr = "127.0.0.1";
  if (p.master_addr.empty() && has(e, "SLURM_STEP_NODELIST")) p.master_addr = first_host(e.at("SLURM_STEP_NODELIST"));
  p.run = value(e, "SLURM_JOB_ID") + "." + e.at("SLURM_STEP_ID");
  if (p.master_port == 0) p.master_port = port_of(p.run);
  p.node = value(e, "SLURMD_NODENAME");
  return p;
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
  return text;
}

std::vector<std::string> template_command(const std::string& text, const LaunchRequest& r, int nodes) {
  std::vector<std::string> out;
  for (const std::string& word : split(text, ' ')) {
    if (word.empty()) continue;
    if (word == "{command}") {
      out.insert(out.end(), r.command.begin(), r.command.end());
      continue;
    }
    std::string w = replaced(word, "{world}", std::to_string(r.world));
    w = replaced(w, "{nodes}", std::to_string(nodes));
    w = replaced(w, "{ranks_per_node}", std::to_string(r.ranks_per_node));
    out.push_back(replaced(w, "{case}", r.case_id));
  }
  return out;
}

}  // namespace

std::string first_host(const std::string& node_list) {
  const auto end = node_list.find_first_of(",[");
  if (end == std::string::npos || node_list[end] == ',') return node_list.substr(0, end);
  const auto stop = node_list.find_first_of(",-]", end + 1);
  return node_list.substr(0, end) + node_list.substr(end + 1, stop - end - 1);
}

std::optional<RankPlace> rank_place(const EnvironmentMap& e) {
  std::optional<RankPlace> p;
  if ((has(e, "RANK") && (has(e, "WORLD_SIZE") || has(e, "LOCAL_RANK"))) || has(e, "TORCHELASTIC_RUN_ID")) {
    if (alone(e)) return std::nullopt;
    p = torchrun_place(e);
  } else if (has(e, "OMPI_COMM_WORLD_RANK") || has(e, "OMPI_COMM_WORLD_SIZE") ||
             (has(e, "PMI_RANK") && has(e, "PMI_SIZE"))) {
    p = mpi_place(e);
  } else if (has(e, "SLURM_STEP_ID") && has(e, "SLURM_PROCID")) {
    p = slurm_place(e);
  }
  if (!p) return std::nullopt;
  if (p->rank >= p->world)
    throw fsdp::ConfigError(fmt::format("[launch] {} says rank {} of {}; ranks go from 0 to {}", p->contract, p->rank,
                                        p->world, p->world - 1));
  if (p->local_world > 0 && p->local_rank >= p->local_world)
    throw fsdp::ConfigError(fmt::format("[launch] {} says local rank {} of {} on this host; they go from 0 to {}",
                                        p->contract, p->local_rank, p->local_world, p->local_world - 1));
  return p;
}

bool is_loopback(const std::string& host) { return host == "localhost" || host.starts_with("127."); }

bool on_one_host(const RankPlace& place) { return place.one_host || is_loopback(place.master_addr); }

void check_master(const RankPlace& place) {
  if (place.master_addr.empty() || place.master_port == 0)
    throw fsdp::ConfigError(fmt::format(
        "[launch] {} does not say where rank 0 listens; set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a "
        "free port on it, for every rank (Open MPI: -x MASTER_ADDR=host -x MASTER_PORT=29500)",
        place.contract));
}

void check_world(const RankPlace& place, int world) {
  if (place.world != world)
    throw fsdp::ConfigError(fmt::format("[world] the case has {} ranks and {} started {}; start {}, or give --world {}",
                                        world, place.contract, place.world, world, place.world));
}

namespace {
// " (seq 64 against 32)"; empty when one of them does not tell.
std::string settings_difference(const RankIdentity& a, const RankIdentity& b) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < std::min(a.settings.size(), b.settings.size()); ++i)
    if (a.settings[i] != b.settings[i] && a.settings[i].first == b.settings[i].first)
      all.push_back(fmt::format("{} {} against {}", a.settings[i].first, a.settings[i].second, b.settings[i].second));
  return all.empty() ? "" : fmt::format(" ({})", fmt::join(all, ", "));
}
}  // namespace

std::string identity_error(std::vector<RankIdentity> ranks, int world) {
  std::stable_sort(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  std::vector<std::string> wrong;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const RankIdentity &a = ranks[j], &b = ranks[i];
      if (a.rank == b.rank) wrong.push_back(fmt::format("rank {} is there twice", a.rank));
      if (a.host != b.host) continue;
      if (a.local_rank == b.local_rank)
        wrong.push_back(
            fmt::format("ranks {} and {} are both local rank {} on {}", a.rank, b.rank, a.local_rank, a.host));
      if (a.device == b.device && a.device != "cpu")
        wrong.push_back(fmt::format("ranks {} and {} are both on {} of {}", a.rank, b.rank, a.device, a.host));
    }
    if (ranks[i].settings_hash != ranks.front().settings_hash)
      wrong.push_back(fmt::format("rank {} has other settings than rank {}{}", ranks[i].rank, ranks.front().rank,
                                  settings_difference(ranks[i], ranks.front())));
    if (ranks[i].version != ranks.front().version)
      wrong.push_back(fmt::format("rank {} is another shardscope than rank {}", ranks[i].rank, ranks.front().rank));
  }
  for (int r = 0; r < world; ++r)
    if (std::none_of(ranks.begin(), ranks.end(), [&](const auto& x) { return x.rank == r; }))
      wrong.push_back(fmt::format("rank {} of {} is missing", r, world));
  if (wrong.empty()) return "";
  std::string text = fmt::format("[launch] {}; start each rank once, with the same command\n", fmt::join(wrong, "; "));
  text += fmt::format("{:>5} {:<20} {:>8} {:>6} {:<8} {:<18} {}\n", "rank", "host", "pid", "local", "device",
                      "settings", "version");
  for (const RankIdentity& r : ranks)
    text += fmt::format("{:>5} {:<20} {:>8} {:>6} {:<8} {:<18} {}\n", r.rank, r.host, r.pid, r.local_rank, r.device,
                        r.settings_hash, r.version);
  return text;
}

Launcher parse_launcher(const std::string& text) {
  if (text == "local") return {Launcher::Kind::kLocal, ""};
  if (text == "slurm") return {Launcher::Kind::kSlurm, ""};
  if (text == "mpi") return {Launcher::Kind::kMpi, ""};
  if (text.rfind("template:", 0) == 0) {
    const std::string body = trim(text.substr(9));
    const auto words = split(body, ' ');
    if (std::find(words.begin(), words.end(), "{command}") == words.end())
      throw fsdp::ConfigError(
          "[--launcher] the template has no word {command}; write for instance template:srun -n {world} {command}");
    return {Launcher::Kind::kTemplate, body};
  }
  throw fsdp::ConfigError(
      fmt::format("[--launcher] \"{}\" is not a launcher; use local, slurm, mpi or template:COMMAND", text));
}

std::vector<std::string> launch_command(const Launcher& launcher, const LaunchRequest& r) {
  const int nodes = r.ranks_per_node > 0 ? (r.world + r.ranks_per_node - 1) / r.ranks_per_node : 0;
  std::vector<std::string> out;
  switch (launcher.kind) {
    case Launcher::Kind::kLocal:
      return {};
    case Launcher::Kind::kSlurm:
      out = {"srun", fmt::format("--ntasks={}", r.world), "--kill-on-bad-exit=1", "--export=ALL",
             "--job-name=" + (r.case_id.empty() ? "shardscope" : r.case_id)};
      if (r.cpus_per_rank > 0) out.push_back(fmt::format("--cpus-per-task={}", r.cpus_per_rank));
      if (nodes > 0) {
        out.push_back(fmt::format("--nodes={}", nodes));
        out.push_back(fmt::format("--ntasks-per-node={}", r.ranks_per_node));
      }
      break;
    case Launcher::Kind::kMpi:
      // Open MPI gives each of few processes one core, which all threads and ranks below it would share.
      out = {"mpirun", "-np", std::to_string(r.world), "--bind-to", "none"};
      if (nodes > 0) out.insert(out.end(), {"--map-by", fmt::format("ppr:{}:node", r.ranks_per_node)});
      // It takes no variable to other nodes by itself, and does not say where rank 0 is.
      if (nodes > 1) out.insert(out.end(), {"-x", "MASTER_ADDR", "-x", "SHARDSCOPE_SECRET"});
      break;
    case Launcher::Kind::kTemplate:
      return template_command(launcher.text, r, std::max(1, nodes));
  }
  out.insert(out.end(), r.command.begin(), r.command.end());
  return out;
}

}  // namespace harness
