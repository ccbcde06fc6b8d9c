// The words that this program was called with.
#pragma once
#include <string>

namespace harness::cli {

void set_command_words(int argc, const char* const* argv);  // once, by main
std::string command_words();                                // "shardscope sweep a.yaml -o out", quoted for a shell

}  // namespace harness::cli
