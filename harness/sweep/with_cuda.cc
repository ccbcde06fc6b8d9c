// Asks the driver itself, which is opened only here: the program starts on machines without one.
#include <dlfcn.h>

#include <string>

#include "fsdp/core/errors.h"
#include "harness/sweep/cuda_support.h"

namespace harness {
namespace {

constexpr char kElse[] = ", or use --device cpu, or --device virtual to predict a GPU node";

template <class F>
F* symbol(void* library, const char* name) {
  return reinterpret_cast<F*>(dlsym(library, name));
}

}  // namespace

bool built_with_cuda() { return true; }

// CUDA driver API, sections 6.2 and 6.5: cuInit and cuDeviceGetCount return 0, or an error of which 100 is "no device".
void require_cuda() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr)
    throw fsdp::EnvironmentError(std::string("[device] there is no NVIDIA driver here (libcuda.so.1); install it") +
                                 kElse);
  auto* const init = symbol<int(unsigned)>(driver, "cuInit");
  auto* const count = symbol<int(int*)>(driver, "cuDeviceGetCount");
  int gpus = 0;
  const int error = init == nullptr || count == nullptr ? -1 : init(0);
  if (error == 0 && count(&gpus) == 0 && gpus > 0) return;
  throw fsdp::EnvironmentError("[device] there is an NVIDIA driver, but no GPU that this process may use (cuInit " +
                               std::to_string(error) + "); look at nvidia-smi and CUDA_VISIBLE_DEVICES" + kElse);
}

bool cuda_runs_here() {
  try {
    require_cuda();
    return true;
  } catch (const fsdp::EnvironmentError&) {
    return false;
  }
}

}  // namespace harness
