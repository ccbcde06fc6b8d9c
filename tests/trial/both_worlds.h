// A case's training on the host, ranks as threads of this process, and the same case predicted: what has to be equal.
#pragma once
#include <string>
#include <vector>

#include "harness/sweep/settings.h"
#include "harness/trial/messages.h"

namespace harness {

// Of rank 0, two steps, the second one traced. Throws what the first rank threw, in rank order.
RankResult on_host(const CaseSettings& settings);
// `settings` with device virtual.
RankResult predicted(CaseSettings settings);

// Collectives of a step in issue order: kind, unit, pass and bytes.
std::vector<std::string> schedule(const std::vector<fsdp::Span>& spans);
// What each lane does, in order of first beginning: kind, unit and pass. Left out is computation of the root, and how
// often a unit goes on after another: before, between and after its children the host spends moments in a parent that
// no operator fills.
std::vector<std::string> order(const std::vector<fsdp::Span>& spans);

// One sentence for each thing that is not equal: peaks in all and by category, the cause of the peak, collectives,
// the spans' order, bytes sent.
std::vector<std::string> differences(const RankResult& host, const RankResult& predicted);

}  // namespace harness
