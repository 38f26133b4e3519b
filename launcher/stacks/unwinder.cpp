#include "launcher/stacks/unwinder.hpp"

#include "base/printable.hpp"
#include "base/process/process_tree.hpp"
#include "base/unique_fd.hpp"
#include "launcher/stacks/libdw.hpp"

#include <cxxabi.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace ddp::launcher {
namespace {

using libdw::Address;
using libdw::Die;

// Innermost first. `is_exact`: it stands there; else a call returns there.
struct Counter {
    Address at = 0;
    bool is_exact = false;
    friend auto operator<=>(const Counter&, const Counter&) = default;
};
using Counters = std::vector<Counter>;

constexpr std::size_t most_of_name = 160;  // of a function, whose template arguments may be many

std::string in_hex(Address value) {
    std::array<char, 16> digits{};
    const char* const end =
        std::to_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr;
    return "0x" + std::string(static_cast<const char*>(digits.data()), end);
}

// "load (loader.cpp:31)", "__libc_start_main (libc.so.6)"
std::string words_for(const std::string& function, std::string_view path, int line = 0) {
    std::string place = base::printable(path.substr(path.rfind('/') + 1));
    if (line > 0) place += ":" + std::to_string(line);
    return function + " (" + place + ")";
}

// Without its parameters; those of templates stay.
std::string without_parameters(std::string name) {
    int depth = 0;
    for (std::size_t i = name.rfind(')'); i != name.npos && i > 0; --i) {
        if (name[i] == ')') ++depth;
        if (name[i] == '(' && --depth == 0) return name.substr(0, i);
    }
    return name;
}

// "clock_nanosleep" also of "clock_nanosleep@@GLIBC_2.17".
std::string readable(std::string name) {
    name.resize(std::min(name.find('@'), name.size()));
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> whole(
        abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
    std::string text = base::printable(whole ? without_parameters(whole.get()) : name);
    if (text.size() > most_of_name) text.replace(most_of_name - 3, text.npos, "...");
    return text;
}

#if defined(__aarch64__)
Address program_counter(const Registers& registers) { return registers.pc; }
Address frame_pointer(const Registers& registers) { return registers.regs[29]; }
// By DWARF's numbers.
std::array<Address, 32> numbered(const Registers& registers) {
    std::array<Address, 32> values{};
    std::copy(std::begin(registers.regs), std::end(registers.regs), values.begin());
    values.back() = registers.sp;
    return values;
}
#else
Address program_counter(const Registers& registers) { return registers.rip; }
Address frame_pointer(const Registers& registers) { return registers.rbp; }
// By DWARF's numbers.
std::array<Address, 17> numbered(const Registers& registers) {
    return {registers.rax, registers.rdx, registers.rcx, registers.rbx, registers.rsi,
            registers.rdi, registers.rbp, registers.rsp, registers.r8,  registers.r9,
            registers.r10, registers.r11, registers.r12, registers.r13, registers.r14,
            registers.r15, registers.rip};
}
#endif

class ByLibdw {
public:
    ByLibdw(const libdw::Library& dw, const StackCopy& copy) : dw_(dw), callbacks_(dw.callbacks) {
        program_ = copy.pid();
        callbacks_.find_elf = &open_file;
        dwfl_ = dw.process.begin(&callbacks_);
        const std::string path = "/proc/" + std::to_string(copy.pid()) + "/maps";
        const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen(path.c_str(), "re"),
                                                                   &std::fclose);
        if (dwfl_ == nullptr || !maps) return;
        if (dw.process.linux_proc_maps_report(dwfl_, maps.get()) != 0) return;
        dw.process.report_end(dwfl_, nullptr, nullptr);
        static constexpr libdw::ThreadCallbacks threads{&next_thread,   nullptr, &read_memory,
                                                        &set_registers, nullptr, nullptr};
        is_ready_ = dw.frames.attach_state(dwfl_, nullptr, copy.pid(), &threads, this);
    }
    ~ByLibdw() {
        if (dwfl_ != nullptr) dw_.process.end(dwfl_);
    }
    ByLibdw(const ByLibdw&) = delete;
    ByLibdw& operator=(const ByLibdw&) = delete;

    bool is_ready() const { return is_ready_; }

    Counters walk(const ThreadCopy& thread) {
        thread_ = &thread;
        counters_.clear();
        dw_.frames.getthread_frames(dwfl_, thread.tid, &note_frame, this);
        return counters_;
    }

    // What was called there: mostly one, with those that the compiler has inlined more.
    const std::vector<std::string>& describe(const Counter& counter) {
        const auto [found, is_new] = described_.try_emplace(counter);
        if (is_new) describe(counter, found->second);
        return found->second;
    }

private:
    void describe(const Counter& counter, std::vector<std::string>& frames) const {
        const Address at = counter.is_exact ? counter.at : counter.at - 1;  // in the call
        libdw::Module* const module = dw_.symbols.addrmodule(dwfl_, at);
        if (module == nullptr) return frames.push_back(in_hex(counter.at));
        Address begin = 0;
        const char* const path = dw_.symbols.module_info(module, nullptr, &begin, nullptr, nullptr,
                                                         nullptr, nullptr, nullptr);
        Address offset = 0;
        Elf64_Sym symbol{};
        const char* const name =
            dw_.symbols.module_addrinfo(module, at, &offset, &symbol, nullptr, nullptr, nullptr);
        const std::string function =
            name != nullptr && *name != '\0' ? readable(name) : in_hex(at - begin);
        Source source = line_at(module, at);
        for_each_inlined(module, at, [&](const std::string& inlined, const Source& caller) {
            if (!source.is_systems()) {
                frames.push_back(words_for(inlined, source.path, source.line));
            }
            source = caller;
        });
        frames.push_back(source.path.empty() ? words_for(function, path == nullptr ? "" : path)
                                             : words_for(function, source.path, source.line));
    }

    struct Source {
        std::string path = {};
        int line = 0;

        // A header of the host's, whose functions are nobody's question.
        bool is_systems() const { return path.starts_with("/usr/"); }
    };

    Source line_at(libdw::Module* module, Address at) const {
        Source source;
        libdw::Line* const line = dw_.symbols.module_getsrc(module, at);
        const char* const path = line == nullptr ? nullptr
                                                 : dw_.symbols.lineinfo(line, nullptr, &source.line,
                                                                        nullptr, nullptr, nullptr);
        if (path != nullptr) source.path = path;
        return source;
    }

    std::uint64_t number_of(Die& die, unsigned attribute) const {
        libdw::Attribute place{};
        std::uint64_t value = 0;
        if (dw_.dies.attr_integrate(&die, attribute, &place) != nullptr)
            dw_.dies.formudata(&place, &value);
        return value;
    }

    // Innermost first: its name, and where it is called.
    template <class Take>
    void for_each_inlined(libdw::Module* module, Address at, Take take) const {
        Address bias = 0;
        Die* const unit = dw_.dies.module_addrdie(module, at, &bias);
        Die* inner = nullptr;
        if (unit == nullptr || dw_.dies.getscopes(unit, at - bias, &inner) <= 0) return;
        const std::unique_ptr<Die, void (*)(void*)> first(inner, &std::free);
        Die* chain = nullptr;
        const int count = dw_.dies.getscopes_die(inner, &chain);
        const std::unique_ptr<Die, void (*)(void*)> all(chain, &std::free);
        libdw::Files* files = nullptr;
        std::size_t file_count = 0;
        if (count <= 0 || dw_.dies.getsrcfiles(unit, &files, &file_count) != 0) return;
        for (int i = 0; i < count; ++i) {
            Die& die = chain[i];
            const int tag = dw_.dies.tag(&die);
            if (tag == libdw::tag_subprogram) return;
            if (tag != libdw::tag_inlined_subroutine) continue;
            libdw::Attribute attribute{};
            const char* const name =
                dw_.dies.attr_integrate(&die, libdw::at_name, &attribute) != nullptr
                    ? dw_.dies.formstring(&attribute)
                    : nullptr;
            Source caller{.line = static_cast<int>(number_of(die, libdw::at_call_line))};
            const char* const path =
                dw_.dies.filesrc(files, number_of(die, libdw::at_call_file), nullptr, nullptr);
            if (path != nullptr) caller.path = path;
            take(base::printable(name == nullptr ? "?" : name, most_of_name), caller);
        }
    }

    // In the program's own file system, which may be a container's.
    static int open_file(libdw::Module*, void**, const char* name, Address, char** path, void**) {
        if (*name != '/') return -1;
        const std::string where = "/proc/" + std::to_string(program_) + "/root" + name;
        base::UniqueFd file(::open(where.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
        struct stat status {};
        if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return -1;
        *path = ::strdup(name);
        return file.release();
    }
    static pid_t next_thread(libdw::Dwfl*, void* self, void** of_thread) {
        auto& me = *static_cast<ByLibdw*>(self);
        if (*of_thread != nullptr) return 0;  // there is one at a time
        *of_thread = &me;
        return me.thread_->tid;
    }
    static bool read_memory(libdw::Dwfl*, Address address, Address* word, void* self) {
        const auto found = static_cast<ByLibdw*>(self)->thread_->word_at(address);
        if (found) *word = *found;
        return found.has_value();
    }
    static bool set_registers(libdw::Thread* thread, void* self) {
        const auto& me = *static_cast<ByLibdw*>(self);
        const auto values = numbered(me.thread_->registers);
        const auto count = static_cast<unsigned>(values.size());
        if (!me.dw_.frames.thread_state_registers(thread, 0, count, values.data())) return false;
        me.dw_.frames.thread_state_register_pc(thread, program_counter(me.thread_->registers));
        return true;
    }
    static int note_frame(libdw::FrameState* state, void* self) {
        auto& me = *static_cast<ByLibdw*>(self);
        constexpr int stop = 1;
        Address counter = 0;
        bool is_exact = false;
        if (!me.dw_.frames.frame_pc(state, &counter, &is_exact)) return stop;
        me.counters_.push_back({counter, is_exact});
        return me.counters_.size() < ThreadStack::most_frames ? 0 : stop;
    }

    // libdw gives its callback no place for it.
    static inline pid_t program_ = 0;

    const libdw::Library& dw_;
    libdw::Callbacks callbacks_;
    libdw::Dwfl* dwfl_ = nullptr;
    bool is_ready_ = false;
    const ThreadCopy* thread_ = nullptr;  // that is walked now
    Counters counters_;
    std::map<Counter, std::vector<std::string>> described_;
};

std::string describe_unnamed(Address counter, const std::vector<base::Mapping>& code) {
    for (const base::Mapping& one : code) {
        if (counter < one.begin || counter >= one.end) continue;
        return words_for(in_hex(counter - one.begin + one.offset), one.path);
    }
    return in_hex(counter);
}

// Each program begins with them.
void drop_beginning(std::vector<std::string>& frames) {
    constexpr std::array<std::string_view, 7> names{
        "_start",       "__libc_start_main", "clone", "__libc_start_call_main",
        "start_thread", "__clone3",          "clone3"};
    const auto begins = [&](std::string_view frame) {
        return std::ranges::find(names, frame.substr(0, frame.find(" ("))) != names.end();
    };
    while (frames.size() > 1 && begins(frames.back())) frames.pop_back();
}

template <class Fill>
std::vector<ThreadStack> stacks_of(const StackCopy& copy, Fill fill) {
    std::vector<ThreadStack> threads;
    for (std::size_t i = 0; i < copy.size(); ++i) {
        const ThreadCopy& thread = copy[i];
        if (thread.has_gone) continue;
        ThreadStack& stack = threads.emplace_back(
            ThreadStack{.tid = thread.tid, .name = base::printable(thread.name.data())});
        if (thread.is_copied) {
            fill(thread, stack.frames);
        } else {
            const auto stat = base::stat_of(thread.tid);
            stack.frames.push_back("(it does not stop" +
                                   (stat ? std::string(": state ") + stat->state : "") + ")");
        }
    }
    return threads;
}

}  // namespace

std::vector<std::uint64_t> frame_pointers_of(const ThreadCopy& thread) {
    std::vector<std::uint64_t> counters{program_counter(thread.registers)};
    Address frame = frame_pointer(thread.registers);
    while (counters.size() < ThreadStack::most_frames) {
        const auto next = thread.word_at(frame);
        const auto returns_to = thread.word_at(frame + sizeof(Address));
        if (!next || !returns_to || *returns_to == 0) break;
        counters.push_back(*returns_to);
        if (*next <= frame) break;  // they lead outwards
        frame = *next;
    }
    return counters;
}

std::vector<ThreadStack> unwind_without_names(const StackCopy& copy) {
    std::vector<base::Mapping> code;
    base::for_each_mapping(std::to_string(copy.pid()), [&](const base::Mapping& one) {
        if (one.access.find('x') != one.access.npos) code.push_back(one);
        return true;
    });
    return stacks_of(copy, [&](const ThreadCopy& thread, std::vector<std::string>& frames) {
        for (const Address counter : frame_pointers_of(thread)) {
            frames.push_back(describe_unnamed(counter, code));
        }
    });
}

std::vector<ThreadStack> unwind(const StackCopy& copy, std::string& problem) {
    ::unsetenv("DEBUGINFOD_URLS");  // nobody waits for a server
    libdw::Library dw;
    std::optional<ByLibdw> by_libdw;
    if (!libdw::load(dw)) {
        problem = "libdw.so.1 is not installed (Debian: libdw1)";
    } else if (!by_libdw.emplace(dw, copy).is_ready()) {
        problem = "libdw cannot read the program";
    }
    if (!problem.empty()) {
        problem += ": names are missing, and perhaps calls";
        return unwind_without_names(copy);
    }
    return stacks_of(copy, [&](const ThreadCopy& thread, std::vector<std::string>& frames) {
        for (const Counter& counter : by_libdw->walk(thread)) {
            const std::vector<std::string>& some = by_libdw->describe(counter);
            frames.insert(frames.end(), some.begin(), some.end());
        }
        drop_beginning(frames);
    });
}

}  // namespace ddp::launcher
