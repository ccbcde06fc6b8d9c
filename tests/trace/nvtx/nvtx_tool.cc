// An NVTX tool: NVTX loads it when NVTX_INJECTION64_PATH names it, and calls the one function that it exports. It
// writes a line for each call to the file SHARDSCOPE_NVTX_LOG with the process id appended:
//   THREAD push|pop|start|end|mark DOMAIN NAME CATEGORY PAYLOAD      names with a space are the line's rest, so NAME is
//   last
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

namespace {

struct Named {
  std::string name;
};

std::mutex mutex;
std::FILE* log_file = nullptr;

void write(const char* what, nvtxDomainHandle_t domain, const nvtxEventAttributes_t* a) {
  const std::lock_guard lock(mutex);
  if (!log_file) return;
  const auto* d = reinterpret_cast<const Named*>(domain);
  std::string name;
  unsigned category = 0;
  unsigned long long payload = 0;
  if (a) {
    if (a->messageType == NVTX_MESSAGE_TYPE_REGISTERED)
      name = reinterpret_cast<const Named*>(a->message.registered)->name;
    else if (a->messageType == NVTX_MESSAGE_TYPE_ASCII)
      name = std::string("unregistered ") + a->message.ascii;
    category = a->category;
    if (a->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64) payload = a->payload.ullValue;
  }
  std::fprintf(log_file, "%d %s %s %u %llu %s\n", static_cast<int>(gettid()), what, d ? d->name.c_str() : "-", category,
               payload, name.c_str());
  std::fflush(log_file);
}

nvtxDomainHandle_t create(const char* name) { return reinterpret_cast<nvtxDomainHandle_t>(new Named{name}); }
nvtxStringHandle_t register_string(nvtxDomainHandle_t, const char* text) {
  return reinterpret_cast<nvtxStringHandle_t>(new Named{text});
}
int push(nvtxDomainHandle_t d, const nvtxEventAttributes_t* a) { return write("push", d, a), 0; }
int pop(nvtxDomainHandle_t d) { return write("pop", d, nullptr), 0; }
nvtxRangeId_t start(nvtxDomainHandle_t d, const nvtxEventAttributes_t* a) { return write("start", d, a), 1; }
void end(nvtxDomainHandle_t d, nvtxRangeId_t) { write("end", d, nullptr); }
void mark(nvtxDomainHandle_t d, const nvtxEventAttributes_t* a) { write("mark", d, a); }

template <class F>
void set(NvtxFunctionTable table, unsigned int size, int id, F* function) {
  if (static_cast<unsigned int>(id) < size) *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const char* path = std::getenv("SHARDSCOPE_NVTX_LOG");
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (!path || !callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  log_file = std::fopen((std::string(path) + "." + std::to_string(getpid())).c_str(), "a");
  set(table, size, NVTX_CBID_CORE2_DomainCreateA, create);
  set(table, size, NVTX_CBID_CORE2_DomainRegisterStringA, register_string);
  set(table, size, NVTX_CBID_CORE2_DomainRangePushEx, push);
  set(table, size, NVTX_CBID_CORE2_DomainRangePop, pop);
  set(table, size, NVTX_CBID_CORE2_DomainRangeStartEx, start);
  set(table, size, NVTX_CBID_CORE2_DomainRangeEnd, end);
  set(table, size, NVTX_CBID_CORE2_DomainMarkEx, mark);
  return 1;
}
