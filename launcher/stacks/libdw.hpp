// libdw (elfutils), which knows what compilers write for debuggers and exceptions: as far as it is
// used here, and loaded when it is. Its interface has been the same since elfutils 0.158, of 2014,
// so no header of it is needed to build, and no library to run. The names are those of libdwfl.h
// and libdw.h, without their prefixes.
#pragma once

#include <elf.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace ddp::launcher::libdw {

struct Dwfl;
struct Module;
struct Line;
struct Thread;
struct FrameState;
struct Files;
using Address = std::uint64_t;

struct Die {
    void* address;
    void* unit;
    void* abbreviation;
    long padding;
};
struct Attribute {
    unsigned code;
    unsigned form;
    unsigned char* value;
    void* unit;
};
// Of dwarf.h.
inline constexpr int tag_inlined_subroutine = 0x1d;
inline constexpr int tag_subprogram = 0x2e;
inline constexpr unsigned at_name = 0x03;
inline constexpr unsigned at_call_file = 0x58;
inline constexpr unsigned at_call_line = 0x59;

struct Callbacks {
    int (*find_elf)(Module*, void**, const char*, Address, char**, void**);
    int (*find_debuginfo)(Module*, void**, const char*, Address, const char*, const char*,
                          std::uint32_t, char**);
    int (*section_address)(Module*, void**, const char*, Address, const char*, std::uint32_t,
                           const void*, Address*);
    char** debuginfo_path;
};

struct ThreadCallbacks {
    pid_t (*next_thread)(Dwfl*, void* argument, void** of_thread);
    bool (*get_thread)(Dwfl*, pid_t, void*, void**);
    bool (*memory_read)(Dwfl*, Address, Address* word, void* argument);
    bool (*set_initial_registers)(Thread*, void* of_thread);
    void (*detach)(Dwfl*, void*);
    void (*thread_detach)(Thread*, void*);
};

// A process: its files, as they are mapped.
struct ProcessCalls {
    Dwfl* (*begin)(const Callbacks*) = nullptr;
    void (*end)(Dwfl*) = nullptr;
    int (*linux_proc_maps_report)(Dwfl*, std::FILE*) = nullptr;
    int (*report_end)(Dwfl*, void*, void*) = nullptr;
};
// The frames of its threads.
struct FrameCalls {
    bool (*attach_state)(Dwfl*, void*, pid_t, const ThreadCallbacks*, void*) = nullptr;
    int (*getthread_frames)(Dwfl*, pid_t, int (*)(FrameState*, void*), void*) = nullptr;
    bool (*thread_state_registers)(Thread*, int first, unsigned count, const Address*) = nullptr;
    void (*thread_state_register_pc)(Thread*, Address) = nullptr;
    bool (*frame_pc)(FrameState*, Address*, bool* is_innermost) = nullptr;
};
// What lies at an address.
struct SymbolCalls {
    Module* (*addrmodule)(Dwfl*, Address) = nullptr;
    const char* (*module_info)(Module*, void***, Address* begin, Address* end, Address*, Address*,
                               const char**, const char**) = nullptr;
    const char* (*module_addrinfo)(Module*, Address, Address* offset, Elf64_Sym*, std::uint32_t*,
                                   void**, Address*) = nullptr;
    Line* (*module_getsrc)(Module*, Address) = nullptr;
    const char* (*lineinfo)(Line*, Address*, int* line, int*, Address*, Address*) = nullptr;
};
// What a compiler has inlined there.
struct DieCalls {
    Die* (*module_addrdie)(Module*, Address, Address* bias) = nullptr;
    int (*getscopes)(Die* unit, Address, Die** scopes) = nullptr;
    int (*getscopes_die)(Die*, Die** scopes) = nullptr;
    int (*tag)(Die*) = nullptr;
    Attribute* (*attr_integrate)(Die*, unsigned name, Attribute*) = nullptr;
    int (*formudata)(Attribute*, std::uint64_t*) = nullptr;
    const char* (*formstring)(Attribute*) = nullptr;
    int (*getsrcfiles)(Die* unit, Files**, std::size_t*) = nullptr;
    const char* (*filesrc)(Files*, std::size_t, std::uint64_t*, std::uint64_t*) = nullptr;
};

struct Library {
    ProcessCalls process = {};
    FrameCalls frames = {};
    SymbolCalls symbols = {};
    DieCalls dies = {};
    Callbacks callbacks = {};
};

// False: it is not installed, or is too old.
bool load(Library& library);

}  // namespace ddp::launcher::libdw
