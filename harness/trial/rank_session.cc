#include "harness/trial/rank_session.h"

#include <sys/resource.h>
#include <unistd.h>

#include <string>

#include "fsdp/core/clock.h"

namespace harness {
namespace {

fsdp::Nanos cpu_time() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  const auto nanos = [](const timeval& t) {
    return fsdp::Nanos{t.tv_sec} * 1'000'000'000 + t.tv_usec * fsdp::Nanos{1000};
  };
  return nanos(u.ru_utime) + nanos(u.ru_stime);
}

void steps(RankWorld& world, RankProgress& progress, int count) {
  for (int i = 0; i < count; ++i) {
    progress.set_step(i);
    world.step();
  }
}

RankEvent repetition(const CaseSettings& settings, RankWorld& world, RankProgress& progress) {
  world.barrier();
  const fsdp::Nanos begin = fsdp::steady_now(), cpu = cpu_time();
  steps(world, progress, settings.steps);
  RankEvent e;
  e.kind = RankEvent::Kind::kRepetition;
  e.ns = fsdp::steady_now() - begin;
  e.cpu_ns = cpu_time() - cpu;
  return e;
}
}  // namespace

void serve(const CaseSettings& settings, RankWorld& world, RankLink& link, RankProgress& progress) {
  progress.set_phase(RankProgress::Phase::kReady);
  RankEvent ready;
  ready.pid = getpid();
  link.send(ready);
  int repetitions = 0;
  fsdp::Nanos cpu_ns = 0;
  while (true) {
    const RankCommand command = link.next();
    if (command == RankCommand::kRepeat) {
      if (repetitions == 0) {
        progress.set_phase(RankProgress::Phase::kWarmup);
        steps(world, progress, settings.warmup);
      }
      progress.set_phase(RankProgress::Phase::kRepetition, ++repetitions);
      const RankEvent done = repetition(settings, world, progress);
      cpu_ns += done.cpu_ns;
      link.send(done);
      world.stop_keeping_numbers();
      progress.set_phase(RankProgress::Phase::kReady);
      continue;
    }
    if (command == RankCommand::kTrace) {
      progress.set_phase(RankProgress::Phase::kTraced);
      world.barrier();
      world.begin_trace();
      steps(world, progress, settings.steps);
    }
    progress.set_phase(RankProgress::Phase::kResult);
    RankEvent result;
    result.kind = RankEvent::Kind::kResult;
    result.result = world.result();
    // Of this process, all its threads: it moves less than the step's length when others use the machine too.
    if (repetitions > 0)
      result.result.environment["machine.cpu_ns_per_step"] = std::to_string(cpu_ns / repetitions / settings.steps);
    return link.send(result);
  }
}

}  // namespace harness
