// Files that a reader never sees half of.
#pragma once
#include <string>

#include "fsdp/core/files.h"

namespace harness {

// Before a long run, for what is written after it, beside `path` first, by write_file or write_trace: throws
// fsdp::ConfigError naming `option` where that could not be done. Leaves no file that was not there.
void check_writable(const std::string& option, const std::string& path);
// Writes `text` beside `path` and moves it there once the disk has it: a reader, and a power cut, find the old file or
// the new one. Several processes may do it at a time. Throws fsdp::ConfigError, fsdp::EnvironmentError when the disk is
// full.
void write_file(const std::string& path, const std::string& text);
void write_file(const fsdp::Folder& folder, const std::string& name, const std::string& text);

}  // namespace harness
