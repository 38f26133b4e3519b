// A profiler for ranges of NVTX, which a program loads by NVTX_INJECTION64_PATH: writes the name of
// each, and "end", to the file of DDP_TEST_TRACE.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>

namespace {

void write(const char* line) {
    const char* const path = std::getenv("DDP_TEST_TRACE");
    std::FILE* const file = path != nullptr ? std::fopen(path, "a") : nullptr;
    if (file == nullptr) return;
    std::fprintf(file, "%s\n", line);
    std::fclose(file);
}
int push(const char* name) {
    write(name);
    return 0;
}
int pop() {
    write("end");
    return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table) {
    const auto* const callbacks =
        static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
    NvtxFunctionTable functions = nullptr;
    if (callbacks == nullptr ||
        callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, nullptr) == 0) {
        return 0;
    }
    *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(&push);
    *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop);
    return 1;
}
