// Who starts the ranks of a trial, and how a process that something else has started knows which rank it is. Pure
// functions of an environment and of texts.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace harness {

using EnvironmentMap = std::map<std::string, std::string>;

// Where a process stands among the ranks of a run.
struct RankPlace {
  std::string contract;  // "torchrun", "slurm", "mpi"
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 0;  // local_world 0: not told
  std::string master_addr;              // host at which rank 0 listens; empty: rank 0 has to tell by other means
  int master_port = 0;
  bool store_is_served = false;  // somebody who is no rank serves a TCPStore there already (torchrun's agent)
  std::string attempt;           // of an elastic launcher that starts the ranks anew in the same store
  std::string run;               // the launcher's name for this run; the same for all ranks, empty when there is none
  bool one_host = false;         // the launcher says that all ranks are on this host
  std::string node;              // the launcher's name for this host; empty: the host's own
};

// The place that a launcher has written into the environment; std::nullopt when no launcher started this process as one
// of several ranks. In this order:
//   torchrun  RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT [LOCAL_WORLD_SIZE]; RANK alone or a world of 1: no
//   mpi       OMPI_COMM_WORLD_{RANK,SIZE,LOCAL_RANK}, or PMI_RANK, PMI_SIZE [MPI_LOCALRANKID]
//   slurm     SLURM_STEP_ID with SLURM_PROCID, SLURM_NTASKS or SLURM_STEP_NUM_TASKS, SLURM_LOCALID: a job step. The
//             variables of a job alone (a batch script, salloc) are no place: the script is not a rank.
// MASTER_ADDR and MASTER_PORT count for all. Without them the address is the loopback one when the launcher says that
// all ranks are on one host (SLURM_STEP_NUM_NODES, mpi's local size), else for slurm the first host of
// SLURM_STEP_NODELIST; the port is made from the names of job and step, so that two steps do not meet. Throws
// fsdp::ConfigError naming the variables when they are incomplete or contradict each other or `world`.
std::optional<RankPlace> rank_place(const EnvironmentMap& environment);
// Whether all ranks are on this host: the launcher says so, or they meet at a loopback address.
bool on_one_host(const RankPlace& place);
bool is_loopback(const std::string& host);  // by name: "localhost", "127.0.0.1"
// Throws fsdp::ConfigError when the place does not say where rank 0 listens.
void check_master(const RankPlace& place);
// Throws fsdp::ConfigError when the launcher started another number of ranks than the case has.
void check_world(const RankPlace& place, int world);

// The first host of a Slurm node list: "node[03-05,9],b1" -> "node03".
std::string first_host(const std::string& node_list);

// What each rank says of itself before step 1.
struct RankIdentity {
  int rank = 0;
  std::string host;
  long pid = 0;
  int local_rank = 0;
  std::string device;                                         // "cpu", "cuda:0"
  std::string settings_hash;                                  // of the canonical settings
  std::string version;                                        // shardscope and revision
  std::vector<std::pair<std::string, std::string>> settings;  // names and values, to tell which one differs
};
// Empty when the ranks agree; else what is wrong and a table of all: a missing or duplicate rank, two ranks on one
// device or local rank of a host, settings or versions that differ (case C30).
std::string identity_error(std::vector<RankIdentity> ranks, int world);

// ---- starting ranks
struct Launcher {
  enum class Kind { kLocal, kSlurm, kMpi, kTemplate } kind = Kind::kLocal;
  std::string text;  // kTemplate: the command with {world}, {nodes}, {ranks_per_node}, {case} and {command}
};
// "local", "slurm", "mpi", "template:ssh-all -n {world} {command}". Throws fsdp::ConfigError; a template needs
// {command}.
Launcher parse_launcher(const std::string& text);

struct LaunchRequest {
  int world = 1;
  int ranks_per_node = 0;  // 0: as the allocation has it
  int cpus_per_rank = 0;   // slurm; 0: its default
  std::string case_id;
  std::vector<std::string> command;  // what every rank runs
};
// The words of the one command that starts all ranks of a trial; empty for local. No shell is involved.
std::vector<std::string> launch_command(const Launcher& launcher, const LaunchRequest& request);

}  // namespace harness
