// `shardscope analyze`: see harness/trace/analyze.h.
#pragma once

namespace CLI {
class App;
}

namespace harness::cli {

void add_analyze(CLI::App& app);

}  // namespace harness::cli
