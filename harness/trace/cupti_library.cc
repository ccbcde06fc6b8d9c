#include "harness/trace/cupti_library.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace harness {
namespace {

constexpr std::array<const char*, 3> kNames = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};

void* open_library(std::string& why) {
  // Two copies in one process would each see half: the one that is there is taken.
  for (const char* name : kNames)
    if (void* library = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return library;
  if (const char* given = std::getenv("SHARDSCOPE_CUPTI"); given != nullptr && std::strchr(given, '/') != nullptr) {
    void* library = dlopen(given, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) why = std::string("SHARDSCOPE_CUPTI=") + given + " cannot be loaded: " + dlerror();
    return library;
  }
  for (const char* name : kNames)
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  why =
      "CUPTI is not on this machine (libcupti.so.13 or .12); it comes with a CUDA build of torch, or name one in "
      "SHARDSCOPE_CUPTI";
  return nullptr;
}

template <class F>
bool take(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(library, name));
  return function != nullptr;
}

// The name of a call that is missing, or null.
const char* fill(void* l, cupti::Api& a) {
  take(l, "cuptiActivitySetAttribute", a.set_attribute);
  take(l, "cuptiSetThreadIdType", a.set_thread_ids);
  if (!take(l, "cuptiGetVersion", a.get_version)) return "cuptiGetVersion";
  if (!take(l, "cuptiSubscribe", a.subscribe)) return "cuptiSubscribe";
  if (!take(l, "cuptiUnsubscribe", a.unsubscribe)) return "cuptiUnsubscribe";
  if (!take(l, "cuptiActivityRegisterCallbacks", a.register_callbacks)) return "cuptiActivityRegisterCallbacks";
  if (!take(l, "cuptiActivityEnable", a.enable)) return "cuptiActivityEnable";
  if (!take(l, "cuptiActivityDisable", a.disable)) return "cuptiActivityDisable";
  if (!take(l, "cuptiActivityFlushAll", a.flush_all)) return "cuptiActivityFlushAll";
  if (!take(l, "cuptiActivityGetNextRecord", a.next_record)) return "cuptiActivityGetNextRecord";
  if (!take(l, "cuptiActivityGetNumDroppedRecords", a.dropped_records)) return "cuptiActivityGetNumDroppedRecords";
  if (!take(l, "cuptiActivityPushExternalCorrelationId", a.push_external))
    return "cuptiActivityPushExternalCorrelationId";
  if (!take(l, "cuptiActivityPopExternalCorrelationId", a.pop_external)) return "cuptiActivityPopExternalCorrelationId";
  if (!take(l, "cuptiGetTimestamp", a.timestamp)) return "cuptiGetTimestamp";
  return nullptr;
}

std::string path_of(const cupti::Api& api) {
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(api.get_version), &info) != 0 && info.dli_fname != nullptr ? info.dli_fname
                                                                                                   : "";
}

}  // namespace

std::optional<CuptiLibrary> load_cupti(std::string& why) {
  void* library = open_library(why);
  if (library == nullptr) return std::nullopt;
  CuptiLibrary out;
  if (const char* missing = fill(library, out.api)) {
    why = std::string("this CUPTI lacks ") + missing + "; CUDA 12.0 or later is needed";
    return std::nullopt;
  }
  out.path = path_of(out.api);
  if (const int result = out.api.get_version(&out.version); result != cupti::kSuccess) {
    why = cupti_refusal("cuptiGetVersion", result);
    return std::nullopt;
  }
  return out;
}

std::string other_profiler(const std::function<const char*(const char*)>& variable) {
  const auto value = [&](const char* name) {
    const char* text = variable(name);
    return std::string_view(text == nullptr ? "" : text);
  };
  const auto yields = [](const std::string& tool) {
    return tool +
           " holds CUPTI in this process: GPU times are left to it, and ranges are made for it (NVTX, domain "
           "shardscope)";
  };
  if (!value("NSYS_PROFILING_SESSION_ID").empty() || !value("NSYSDK_INJECTION64_PATH").empty())
    return yields("Nsight Systems");
  if (!value("NV_NSIGHT_INJECTION_TRANSPORT_TYPE").empty()) return yields("Nsight Compute");
  if (!value("NVPROF_ID").empty()) return yields("nvprof");
  if (const auto path = value("CUDA_INJECTION64_PATH"); !path.empty()) return yields("the tool " + std::string(path));
  if (const auto path = value("NVTX_INJECTION64_PATH");
      path.find("nsys") != path.npos || path.find("Nsight") != path.npos)
    return yields("Nsight Systems");
  if (const auto preload = value("LD_PRELOAD");
      preload.find("nsys") != preload.npos || preload.find("cupti") != preload.npos)
    return yields("a preloaded tool (LD_PRELOAD)");
  return "";
}

std::string cupti_refusal(const char* call, int result) {
  const std::string code = " (" + std::string(call) + ", result " + std::to_string(result) + ")";
  switch (result) {
    case cupti::kOtherSubscriber:
      return "another tool in this process holds CUPTI" + code +
             ": GPU times are left to it; end the other profiler, or keep its trace and `shardscope analyze` it";
    case cupti::kNoPrivileges:
      return "this user may not trace the GPU" + code +
             ": ask the administrator for NVreg_RestrictProfilingToAdminUsers=0, or for CAP_SYS_ADMIN in the container";
    case cupti::kUnknownError:
      return "CUPTI found no driver that it can work with" + code + "; nvidia-smi says whether there is one";
    default:
      return "CUPTI refused" + code + ": the GPU is not traced";
  }
}

}  // namespace harness
