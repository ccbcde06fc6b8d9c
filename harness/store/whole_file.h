// Files that a reader never sees half of.
#pragma once
#include <string>

namespace harness {

// Before a long run, for what is written after it, beside `path` first, by write_file or write_trace: throws
// fsdp::ConfigError naming `option` where that could not be done. Leaves no file that was not there.
void check_writable(const std::string& option, const std::string& path);
// Writes `text` beside `path` and moves it there, so that a reader never sees half a file. Throws fsdp::ConfigError.
void write_file(const std::string& path, const std::string& text);

}  // namespace harness
