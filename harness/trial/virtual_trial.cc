#include "harness/trial/virtual_trial.h"

#include <algorithm>
#include <optional>

#include "fsdp/core/clock.h"
#include "fsdp/core/seconds.h"
#include "harness/sweep/quantities.h"
#include "harness/trial/assemble.h"
#include "harness/trial/case_costs.h"
#include "harness/trial/messages.h"
#include "harness/trial/outcome.h"
#include "harness/trial/virtual_workers.h"

namespace harness {
namespace {

constexpr fsdp::Nanos kTick = 100'000'000;

// The answer of a worker, or why there is none.
struct Answer {
  std::optional<RankEvent> event;
  Status status = Status::kCrashed;
  std::string reason, passing;
};

Answer wait_for_answer(RankProcesses& worker, fsdp::Nanos patience, const TrialOptions& options) {
  const fsdp::Nanos deadline = options.timeout > 0 ? fsdp::steady_now() + options.timeout : INT64_MAX;
  ProcessSight sight = worker.sight(0);
  fsdp::Nanos active = fsdp::steady_now();
  while (true) {
    for (const RankUpdate& u : worker.wait(std::min(deadline, fsdp::steady_now() + kTick))) {
      if (u.kind == RankUpdate::Kind::kLine) return {rank_event_from_json(u.line), Status::kCrashed, "", ""};
      if (u.kind == RankUpdate::Kind::kEnded) {
        const Failure f = failure_of_exit(0, u.wait_status, "while predicting", worker.log_tail(0));
        return {std::nullopt, f.status, "rank 0 " + f.reason, passing_trouble(f)};
      }
    }
    if (options.stop != nullptr && options.stop->load()) return {std::nullopt, Status::kSkipped, "interrupted", ""};
    if (fsdp::steady_now() >= deadline)
      return {std::nullopt, Status::kTimeout, "the prediction did not come within the timeout", ""};
    // It waits for nobody: without processor time it is stopped, or starved.
    const ProcessSight now = worker.sight(0);
    if (now.ticks != sight.ticks) active = fsdp::steady_now();
    sight = now;
    if (fsdp::steady_now() - active > patience)
      return {std::nullopt, Status::kTimeout,
              std::string("the process that predicts ") + (now.stopped ? "is stopped (SIGSTOP)" : "does nothing") +
                  "; it has used no processor time for " + fsdp::seconds(patience),
              ""};
  }
}

// What fits by its bytes may not, or barely, fit the allocator below them.
void judge_allocator(CaseRecord& record) {
  const auto number = [&](const char* key) {
    const auto at = record.environment.find(key);
    return at == record.environment.end() ? std::int64_t{0} : std::stoll(at->second);
  };
  const std::int64_t retries = number("predicted_allocator_retries"), failures = number("predicted_allocator_failures");
  if (retries + failures == 0 || !measured(record.status)) return;
  record.status = Status::kNearOom;
  record.reason = "the caching allocator would free its cache and ask again " + std::to_string(retries) +
                  " times a step, " + std::to_string(failures) + " requests would fail all the same (" +
                  format_bytes(number("predicted_cached_bytes")) +
                  " lie in pieces or kept): slower than predicted, or "
                  "out of memory";
}

void take_failure(const RankEvent& e, CaseRecord& record) {
  const Outcome o = outcome_of({{e.status, 0, Failure::Kind::kReported, e.reason, e.cause, "", e.where, e.held}});
  record.status = o.status;
  record.reason = o.reason;
  record.peak_cause = o.cause;
  if (o.held >= 0) record.peak_bytes = o.held;
  if (!o.passing.empty()) record.environment[kPassingTrouble] = o.passing;
}

}  // namespace

void run_virtual_trial(const CaseSettings& settings, const TrialOptions& options, CaseRecord& record) {
  RankJob job;
  job.settings = with_hardware_budget(settings);
  job.world = settings.world;
  job.trace = options.trace;
  const std::string program = options.rank_program.empty() ? default_rank_program() : options.rank_program;
  VirtualWorkers& workers = VirtualWorkers::instance();
  std::unique_ptr<RankProcesses> worker = workers.take(program);
  if (options.progress) options.progress({"predicting", 0, {worker->pid(0)}});
  worker->send(0, to_json_line(job));
  Answer answer = wait_for_answer(*worker, settings.step_timeout, options);
  if (!answer.event) {
    record.status = answer.status;
    record.reason = answer.reason;
    if (!answer.passing.empty()) record.environment[kPassingTrouble] = answer.passing;
    return;
  }
  workers.give_back(program, std::move(worker));
  if (answer.event->kind == RankEvent::Kind::kFailed) return take_failure(*answer.event, record);
  fill_samples(record, settings, {answer.event->ns}, RepeatStop::kMax);
  fill_results(record, job.settings, {std::move(answer.event->result)});
  judge_allocator(record);
}

}  // namespace harness
