// The timeline of a case as a page carries it: JSON of integers, deflated (zlib format) and in base64.
//
// {"ranks":[{"rank":r,"begin":b,"end":e,
//            "pieces":[class,unit,pass,length, ...],                      tile [begin, end) from begin on; may be empty
//            "lanes":[[lane,[kind,unit,pass,gap,length,bytes,lag, ...]], ...]}],  gap: begin - begin of the one before
//  "units":[unit,pass,all_gathers,reduce_scatters,others,ag_bytes,rs_bytes,ag_ns,rs_ns,exposed,hidden,compute,copy,
//  ...],
//  "savings":[unit,pass,kind,exposed,saved, ...]}  of the partition's rank, the largest first
//  (harness/analysis/savings.h)
// The first gap of a lane counts from the rank's begin; lag is begin - issued. Times are nanoseconds.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/store/records.h"

namespace reports {

// Which ranks of a case have spans, ascending.
std::vector<int> ranks_with_spans(const harness::CaseRecord& c);

// How far two ranks' stamps may be off each other, from the collectives that all of them share; std::nullopt for one
// rank, and where there is no such collective.
std::optional<fsdp::Nanos> clock_uncertainty(const harness::CaseRecord& c);

// The JSON above for these ranks, not yet packed.
std::string timeline_json(const harness::CaseRecord& c, const std::vector<int>& ranks);

// zlib, then base64. Throws fsdp::Error when zlib fails.
std::string packed(std::string_view text);
std::string base64(std::string_view bytes);

// Which timelines a page carries, and at what cost. Cases come in `order` of importance: first every case gets the rank
// that its partition describes, then, in the same order, cases get their other ranks, until `budget` bytes are used.
struct Timelines {
  std::vector<std::string> packed;                            // [case]; empty: none embedded
  std::vector<std::optional<fsdp::Nanos>> clock_uncertainty;  // [case]; of those with every rank in the page
  std::size_t with_spans = 0;                                 // cases that have spans
  std::size_t embedded = 0;                                   // of those, in the page
  std::size_t all_ranks = 0;                                  // of those, with every rank
};
Timelines pack_timelines(const std::vector<harness::CaseRecord>& cases, const std::vector<std::size_t>& order,
                         std::size_t budget);

}  // namespace reports
