// shardscope-rank: the process of one rank of a trial. Not called by people; `shardscope run` and `sweep` start it.
//   --control-fd N   speaks the protocol of messages.h over this inherited socket; a job on device virtual is answered
//                    with its result, and the next job may follow
//   --probe          prints what this LibTorch can do, as JSON, and ends
//   --calibrate [quick]  measures this machine and prints a hardware file; says on standard error what it does
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>

#include "fsdp/core/errors.h"
#include "harness/trial/calibration.h"
#include "harness/trial/gpu/libraries.h"
#include "harness/trial/rank_joining.h"
#include "harness/trial/rank_link.h"
#include "harness/trial/rank_progress.h"
#include "harness/trial/rank_session.h"
#include "harness/trial/rank_world.h"
#include "harness/trial/run_store.h"
#include "harness/trial/virtual_world.h"

namespace harness {
namespace {

int probe() {
  std::map<std::string, std::string> facts = torch_environment();
  facts.merge(gpu_libraries());
  std::cout << nlohmann::json(facts).dump() << "\n";
  return 0;
}

int calibrate(bool quick) {
  const Hardware h = calibrate_host(quick, [](const std::string& what) { std::cerr << what << std::endl; });
  std::cout << to_yaml(h) << std::flush;
  return 0;
}

// LibTorch's destructors take a tenth of a second and have nothing to say.
[[noreturn]] void leave(int code) {
  std::cout.flush();
  std::cerr.flush();
  _exit(code);
}

// Of what the exception in flight makes the case.
RankEvent failure_in_flight() {
  RankEvent e;
  e.kind = RankEvent::Kind::kFailed;
  try {
    throw;
  } catch (const fsdp::OutOfMemory& x) {
    e.status = Status::kOom, e.reason = x.what(), e.cause = x.cause, e.held = x.live;
  } catch (const fsdp::TimeoutError& x) {
    e.status = Status::kTimeout, e.reason = x.what();
  } catch (const fsdp::CommError& x) {
    e.status = Status::kCommError, e.reason = x.what();
  } catch (const fsdp::ConfigError& x) {
    e.status = Status::kConfigError, e.reason = x.what();
  } catch (const fsdp::EnvironmentError& x) {
    e.status = Status::kSkipped, e.reason = x.what();
  } catch (const std::bad_alloc&) {
    e.status = Status::kOom, e.reason = "[rank] the system has no more memory for this process";
  } catch (const std::exception& x) {
    e.status = Status::kCrashed, e.reason = std::string(x.what()).substr(0, std::strcspn(x.what(), "\n"));
    std::cerr << x.what() << std::endl;
  }
  return e;
}

RankEvent predict(const RankJob& job) {
  RankProgress progress;
  try {
    VirtualRun run = run_virtual(job, progress, job.trace);
    RankEvent e;
    e.kind = RankEvent::Kind::kResult;
    e.ns = run.step_ns;
    e.result = std::move(run.result);
    return e;
  } catch (...) {
    RankEvent e = failure_in_flight();
    e.where = progress.where();
    return e;
  }
}

// A worker of the virtual world: case after case, until the launcher closes.
[[noreturn]] void serve_virtual(RankJob job, RankLink& link) {
  try {
    while (true) {
      link.send(predict(job));
      job = rank_job_from_json(link.read_first_line());
    }
  } catch (const fsdp::CommError&) {
    leave(0);
  }
}

int run(int control_fd) {
  RankLink link(control_fd);
  RankProgress progress;
  RankJoining joining;
  std::unique_ptr<LeaderRendezvous> rendezvous;
  std::unique_ptr<RankWorld> world;
  try {
    const RankJob job = joining.receive_job(link);
    if (job.settings.device == DeviceKind::kVirtual) serve_virtual(job, link);
    if (!job.master_host.empty())
      rendezvous =
          std::make_unique<LeaderRendezvous>(job.master_host, [&](const std::string& l) { link.send_line(l); });
    link.start({.where = [&] { return progress.where(); },
                .on_closed = [] { leave(0); },
                .communicators = [&] { return progress.communicators(); },
                .other = [&](const std::string& l) { return rendezvous && rendezvous->take(l); }});
    world = std::make_unique<RankWorld>(job, progress, rendezvous.get());
    serve(job.settings, *world, link, progress);
    link.next();  // until the launcher has heard every rank, and closes: link ends this process
  } catch (...) {
    RankEvent e = failure_in_flight();
    e.where = progress.where();
    if (world) world->abort(e.reason);
    link.send_line(at_line(progress.communicators()));
    link.send(e);
  }
  leave(1);
}

}  // namespace
}  // namespace harness

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // the launcher sets it too, before exec
  // Gloo writes to a peer's socket whether or not the peer is there: that is an error to tell, not a death by signal.
  std::signal(SIGPIPE, SIG_IGN);
  // Ranks meet at numbers. LibTorch asks DNS for the name of every peer all the same, for its messages: where nothing
  // answers, that takes longer than the meeting. No attempt, no wait (man resolv.conf; a user's own value stays).
  setenv("RES_OPTIONS", "attempts:0", 0);
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--probe") == 0) return harness::probe();
    if (std::strcmp(argv[i], "--calibrate") == 0)
      return harness::calibrate(i + 1 < argc && std::strcmp(argv[i + 1], "quick") == 0);
    if (std::strcmp(argv[i], "--control-fd") == 0 && i + 1 < argc) return harness::run(std::atoi(argv[i + 1]));
  }
  std::cerr << "shardscope-rank is started by `shardscope run` and `shardscope sweep`; "
               "--probe says what its LibTorch can do\n";
  return 2;
}
