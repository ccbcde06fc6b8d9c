// Pure parts of the analysis of traces.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "harness/trace/analyze.h"

namespace harness {

// "trace_rank3.json" -> 3, "rank-12" -> 12, "worker_rank 3" -> 3.
std::optional<int> rank_in_name(const std::string& path);

// "968 operations (30.000 us, ...) ran before the first step".
std::string before_steps_text(const RowAnalysis& row);

// Empty for kNoUnit and for units without a name.
std::string unit_name(fsdp::UnitId unit, const std::vector<std::string>& names);
const std::vector<std::string>& names_of(const RowAnalysis& row);  // of the units of its file

// "all-gather of layers.3, backward".
std::string saving_name(const Saving& s, const std::vector<std::string>& names);

// Findings own disjoint parts of the exposed time: what a stream is to blame for is not claimed again by units.
std::vector<AnalysisFinding> findings_of(const RowAnalysis& row);

// The longest stretch without model work, from the pieces of own steps.
CriticalStretch longest_stretch(const std::vector<ForeignStep>& steps);

// Adds one step's metrics to the sums over steps.
void add_units(std::vector<UnitMetrics>& all, const UnitMetrics& m);

}  // namespace harness
