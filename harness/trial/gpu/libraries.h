// Which CUPTI and NCCL a process with LibTorch would use, for `doctor`.
#pragma once
#include <map>
#include <string>

namespace harness {

// "cupti" and "nccl": "13.0.1, PATH", or "" where there is none. LibTorch's wheel keeps them beside itself; its place
// is that of the libtorch_cpu in this process. Loads the libraries: in a process that is about to end.
std::map<std::string, std::string> gpu_libraries();

// 130001 -> "13.0.1"; before 13.0: 26 -> "API 26". 22809 -> "2.28.9".
std::string cupti_version_text(unsigned version);
std::string nccl_version_text(int version);

}  // namespace harness
