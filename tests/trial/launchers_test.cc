#include "harness/trial/launchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/core/errors.h"

namespace harness {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

std::string error_of(const EnvironmentMap& e) {
  try {
    rank_place(e);
  } catch (const fsdp::ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

const EnvironmentMap kTorchrun = {{"RANK", "3"},         {"WORLD_SIZE", "8"},
                                  {"LOCAL_RANK", "1"},   {"LOCAL_WORLD_SIZE", "2"},
                                  {"MASTER_ADDR", "n0"}, {"MASTER_PORT", "29500"}};
const EnvironmentMap kSlurm = {{"SLURM_JOB_ID", "7"},
                               {"SLURM_STEP_ID", "2"},
                               {"SLURM_PROCID", "5"},
                               {"SLURM_NTASKS", "16"},
                               {"SLURM_LOCALID", "1"},
                               {"SLURM_STEP_NUM_TASKS", "8"},
                               {"SLURM_STEP_NODELIST", "gpu[07-08,11]"}};

TEST(RankPlace, TorchrunSaysEverything) {
  const auto p = rank_place(kTorchrun);
  ASSERT_TRUE(p);
  EXPECT_EQ(p->contract, "torchrun");
  EXPECT_EQ(p->rank, 3);
  EXPECT_EQ(p->world, 8);
  EXPECT_EQ(p->local_rank, 1);
  EXPECT_EQ(p->master_addr, "n0");
  EXPECT_EQ(p->master_port, 29500);
}

TEST(RankPlace, AnIncompleteContractNamesWhatIsMissingAndNeverFallsBackToThisHost) {
  EnvironmentMap e = kTorchrun;
  e.erase("MASTER_ADDR");
  e.erase("LOCAL_RANK");
  e["TORCHELASTIC_RUN_ID"] = "none";
  EXPECT_THAT(error_of(e), HasSubstr("torchrun started this process without LOCAL_RANK, MASTER_ADDR"));
  EXPECT_THAT(error_of({{"OMPI_COMM_WORLD_SIZE", "4"}}), HasSubstr("without OMPI_COMM_WORLD_RANK"));
}

// case N10: a pod of a Kubeflow PyTorchJob, and what else sets some of the names.
TEST(RankPlace, OneProcessIsNoLaunch) {
  const EnvironmentMap pod = {
      {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "23456"}, {"WORLD_SIZE", "1"}, {"RANK", "0"}};
  EXPECT_FALSE(rank_place(pod));
  EXPECT_FALSE(rank_place({{"WORLD_SIZE", "8"}}));
  EXPECT_FALSE(rank_place({{"RANK", "0"}}));
  EXPECT_FALSE(rank_place({{"LOCAL_RANK", "0"}}));
  EXPECT_FALSE(rank_place({{"MASTER_ADDR", "n0"}, {"MASTER_PORT", "29500"}}));
  EnvironmentMap two = pod;
  two["WORLD_SIZE"] = "2";
  EXPECT_THAT(error_of(two), testing::AllOf(HasSubstr("LOCAL_RANK is not"), HasSubstr("unset RANK and WORLD_SIZE")));
}

TEST(RankPlace, RanksOfOneHostMeetThereWithoutBeingTold) {
  EnvironmentMap e = kSlurm;
  e["SLURM_STEP_NUM_NODES"] = "1";
  EXPECT_EQ(rank_place(e)->master_addr, "127.0.0.1");
  EnvironmentMap mpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                        {"PMIX_NAMESPACE", "1234"}};
  const auto one = rank_place(mpi);
  EXPECT_EQ(one->master_addr, "127.0.0.1");
  EXPECT_GE(one->master_port, 20'000);
  EXPECT_LT(one->master_port, 32'000);
  EXPECT_NO_THROW(check_master(*one));
  mpi["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_EQ(rank_place(mpi)->master_addr, "") << "several hosts: nobody has said which is rank 0's";
  EXPECT_THROW(check_master(*rank_place(mpi)), fsdp::ConfigError);
}

TEST(RankPlace, AnElasticAgentServesTheStore) {
  EXPECT_FALSE(rank_place(kTorchrun)->store_is_served);
  EnvironmentMap e = kTorchrun;
  e["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  e["TORCHELASTIC_RESTART_COUNT"] = "2";
  EXPECT_TRUE(rank_place(e)->store_is_served);
  EXPECT_EQ(rank_place(e)->attempt, "2");
}

TEST(RankIdentity, TheSettingThatDiffersIsNamed) {
  RankIdentity a{0, "n0", 1, 0, "cpu", "aa", "1", {{"seq", "32"}, {"batch", "1"}}};
  RankIdentity b{1, "n0", 2, 1, "cpu", "bb", "1", {{"seq", "64"}, {"batch", "1"}}};
  EXPECT_THAT(identity_error({a, b}, 2), HasSubstr("rank 1 has other settings than rank 0 (seq 64 against 32)"));
}

TEST(RankPlace, ASlurmStepIsAPlaceAndTheStepCountsNotTheJob) {
  const auto p = rank_place(kSlurm);
  ASSERT_TRUE(p);
  EXPECT_EQ(p->rank, 5);
  EXPECT_EQ(p->world, 8);
  EXPECT_EQ(p->master_addr, "gpu07");
  EnvironmentMap other = kSlurm;
  other["SLURM_STEP_ID"] = "3";
  EXPECT_NE(rank_place(other)->master_port, p->master_port) << "two steps of a job do not meet";
}

TEST(RankPlace, ASlurmJobWithoutAStepIsNoRank) {
  EXPECT_FALSE(rank_place({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}));
  EXPECT_FALSE(rank_place({}));
}

TEST(RankPlace, MpiOfBothFamilies) {
  const auto open =
      rank_place({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_EQ(open->contract, "mpi");
  EXPECT_EQ(open->local_rank, 1);
  EXPECT_EQ(rank_place({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}})->world, 4);
}

TEST(RankPlace, ContradictionsAreErrors) {
  EnvironmentMap e = kTorchrun;
  e["RANK"] = "8";
  EXPECT_THAT(error_of(e), HasSubstr("rank 8 of 8"));
  e["RANK"] = "x";
  EXPECT_THAT(error_of(e), HasSubstr("RANK of torchrun is \"x\""));
  e = kTorchrun;
  e["LOCAL_RANK"] = "2";
  EXPECT_THAT(error_of(e), HasSubstr("local rank 2 of 2"));
  EXPECT_THROW(check_world(*rank_place(kTorchrun), 4), fsdp::ConfigError);
  EXPECT_NO_THROW(check_world(*rank_place(kTorchrun), 8));
}

TEST(RankPlace, FirstHostOfANodeList) {
  EXPECT_EQ(first_host("a"), "a");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("node[03-05,9],b1"), "node03");
  EXPECT_EQ(first_host("node[7]"), "node7");
}

RankIdentity identity(int rank, const std::string& host, int local) {
  return {rank, host, 100 + rank, local, "cpu", "abc", "0.1.0 (r)"};
}

TEST(RankIdentities, RanksThatAgreeAreFine) {
  EXPECT_EQ(identity_error({identity(1, "a", 1), identity(0, "a", 0), identity(2, "b", 0)}, 3), "");
}

TEST(RankIdentities, ADuplicateAMissingOneAndDifferentSettingsAreToldWithATable) {
  std::vector<RankIdentity> ranks = {identity(0, "a", 0), identity(0, "b", 0), identity(2, "a", 0)};
  ranks[2].settings_hash = "other";
  const std::string text = identity_error(ranks, 3);
  EXPECT_THAT(text, HasSubstr("rank 0 is there twice"));
  EXPECT_THAT(text, HasSubstr("ranks 0 and 2 are both local rank 0 on a"));
  EXPECT_THAT(text, HasSubstr("rank 2 has other settings than rank 0"));
  EXPECT_THAT(text, HasSubstr("rank 1 of 3 is missing"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5) << text;
}

TEST(RankIdentities, EightWorkersOnOneGpuAreAnError) {
  std::vector<RankIdentity> ranks;
  for (int r = 0; r < 8; ++r) ranks.push_back(identity(r, "a", r)), ranks.back().device = "cuda:0";
  EXPECT_THAT(identity_error(ranks, 8), HasSubstr("ranks 0 and 1 are both on cuda:0 of a"));
}

TEST(Launchers, OneCommandStartsAllRanksOfATrial) {
  const LaunchRequest r{16, 8, 4, "case-1", {"shardscope", "run", "--world", "16"}};
  EXPECT_EQ(launch_command(parse_launcher("local"), r), Words{});
  EXPECT_EQ(launch_command(parse_launcher("slurm"), r),
            (Words{"srun", "--ntasks=16", "--kill-on-bad-exit=1", "--export=ALL", "--job-name=case-1",
                   "--cpus-per-task=4", "--nodes=2", "--ntasks-per-node=8", "shardscope", "run", "--world", "16"}));
  EXPECT_EQ(launch_command(parse_launcher("mpi"), r),
            (Words{"mpirun", "-np", "16", "--bind-to", "none", "--map-by", "ppr:8:node", "-x", "MASTER_ADDR", "-x",
                   "SHARDSCOPE_SECRET", "shardscope", "run", "--world", "16"}));
  EXPECT_EQ(launch_command(parse_launcher("template: bsub -n {world} -J {case} {command} --x={nodes}"), r),
            (Words{"bsub", "-n", "16", "-J", "case-1", "shardscope", "run", "--world", "16", "--x=2"}));
}

TEST(Launchers, ATemplateWithoutACommandAndAnUnknownNameAreErrors) {
  EXPECT_THROW(parse_launcher("template:srun"), fsdp::ConfigError);
  EXPECT_THROW(parse_launcher("pbs"), fsdp::ConfigError);
}

}  // namespace
}  // namespace harness
