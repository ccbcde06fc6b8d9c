#!/usr/bin/env python3
"""load_in_hta.py TRACE: what HolisticTraceAnalysis reads from a trace, as one line of JSON."""
import json
import logging
import os
import sys

logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis  # noqa: E402

path = os.path.abspath(sys.argv[1])
analysis = TraceAnalysis(trace_files={0: path}, trace_dir=os.path.dirname(path), include_last_profiler_step=True)
rows = analysis.t.traces[0]
times = analysis.get_temporal_breakdown(visualize=False).iloc[0]
overlap = float(analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"][0])
print(json.dumps({"operations": int((rows["stream"] >= 0).sum()), "idle_us": float(times["idle_time(us)"]),
                  "kernel_time_us": float(times["kernel_time(us)"]), "overlap_pct": overlap if overlap == overlap else None}))
