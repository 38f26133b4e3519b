#include "launcher/stacks/libdw.hpp"

#include <dlfcn.h>

#include <type_traits>

namespace ddp::launcher::libdw {

bool load(Library& library) {
    void* const file = ::dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    if (file == nullptr) return false;
    bool has_all = true;
    const auto find = [&](const char* name, auto& function) {
        using Function = std::remove_reference_t<decltype(function)>;
        function = reinterpret_cast<Function>(::dlsym(file, name));  // NOLINT: what dlsym gives
        has_all = has_all && function != nullptr;
    };
    find("dwfl_begin", library.process.begin);
    find("dwfl_end", library.process.end);
    find("dwfl_linux_proc_maps_report", library.process.linux_proc_maps_report);
    find("dwfl_report_end", library.process.report_end);
    find("dwfl_attach_state", library.frames.attach_state);
    find("dwfl_getthread_frames", library.frames.getthread_frames);
    find("dwfl_thread_state_registers", library.frames.thread_state_registers);
    find("dwfl_thread_state_register_pc", library.frames.thread_state_register_pc);
    find("dwfl_frame_pc", library.frames.frame_pc);
    find("dwfl_addrmodule", library.symbols.addrmodule);
    find("dwfl_module_info", library.symbols.module_info);
    find("dwfl_module_addrinfo", library.symbols.module_addrinfo);
    find("dwfl_module_getsrc", library.symbols.module_getsrc);
    find("dwfl_lineinfo", library.symbols.lineinfo);
    find("dwfl_module_addrdie", library.dies.module_addrdie);
    find("dwarf_getscopes", library.dies.getscopes);
    find("dwarf_getscopes_die", library.dies.getscopes_die);
    find("dwarf_tag", library.dies.tag);
    find("dwarf_attr_integrate", library.dies.attr_integrate);
    find("dwarf_formudata", library.dies.formudata);
    find("dwarf_formstring", library.dies.formstring);
    find("dwarf_getsrcfiles", library.dies.getsrcfiles);
    find("dwarf_filesrc", library.dies.filesrc);
    find("dwfl_standard_find_debuginfo", library.callbacks.find_debuginfo);
    return has_all;
}

}  // namespace ddp::launcher::libdw
