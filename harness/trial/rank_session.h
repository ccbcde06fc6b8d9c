// What a rank does once its world is built: warms up, repeats, traces, as the launcher says.
#pragma once
#include "harness/sweep/settings.h"
#include "harness/trial/rank_link.h"
#include "harness/trial/rank_progress.h"
#include "harness/trial/rank_world.h"

namespace harness {

// Says `ready`, obeys, and returns when the result is sent. Throws what a step throws.
void serve(const CaseSettings& settings, RankWorld& world, RankLink& link, RankProgress& progress);

}  // namespace harness
