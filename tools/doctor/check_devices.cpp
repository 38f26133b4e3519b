// GPUs, and libraries that ddp loads when they are there. The driver's library may hang or crash
// where the driver does, so children open all of them.
#include <ddp/version.hpp>

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <sstream>

#include "base/printable.hpp"
#include "base/unique_fd.hpp"
#include "doctor/checks.hpp"
#include "doctor/child.hpp"
#include "launcher/plan/visible_gpus.hpp"

namespace ddp::doctor {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::seconds library_limit = 20s;  // the driver's first start takes seconds

constexpr std::size_t most_gpus = 64;

std::string shown(const std::string& line) { return base::printable(line, 200); }

// In a child; empty when there is none such.
template <class Function>
Function* find(void* library, const char* name) {
    return library == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(library, name));
}

// "2.18.5" of 21805, as NCCL counts from 2.9 on; "12.4" of CUDA's 12040.
std::string nccl_version(int number) {
    return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
           std::to_string(number % 100);
}
std::string cuda_version(int number) {
    return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string ask_nccl(void* library) {
    int number = 0;
    auto* const version = find<int(int*)>(library, "ncclGetVersion");
    return version != nullptr && version(&number) == 0 ? nccl_version(number) : "of no version";
}
std::string ask_ssl(void* library) {
    auto* const version = find<const char*(int)>(library, "OpenSSL_version");
    return version != nullptr ? version(0) : "";
}
std::string ask_ucx(void* library) {
    auto* const version = find<const char*()>(library, "ucp_get_version_string");
    return version != nullptr ? version() : "";
}
std::string ask_nothing(void*) { return ""; }

struct Library {
    const char* file;
    const char* use;
    const char* package;  // of Debian; null: no word where it is absent
    std::string (*ask)(void* library);
};
constexpr Library libraries[] = {
    {"libssl.so.3", "hosts that a token admits speak TLS by it", "libssl3", ask_ssl},
    {"libucp.so.0", "messages between hosts", "libucx0", ask_ucx},
    {"libdw.so.1", "names of what ranks do that hang", "libdw1", ask_nothing},
    {"libmunge.so.2", "Slurm's proof of who joins", nullptr, ask_nothing},
};

enum class Loading : std::uint8_t { absent, loaded, broken };
struct Loaded {
    Loading state;
    std::string says;  // its version, or why it cannot be loaded
};
Loaded load(const Library& one) {
    const auto answer = in_child(library_limit, [&] {
        void* const library = ::dlopen(one.file, RTLD_NOW | RTLD_LOCAL);
        if (library != nullptr) return "+" + one.ask(library);
        const char* const why = ::dlerror();
        return "-" + std::string(why != nullptr ? why : "");
    });
    if (!answer || answer->empty()) return {Loading::broken, "it crashes or hangs"};
    if (answer->front() == '+') return {Loading::loaded, answer->substr(1)};
    // Not where a library that it needs is missing.
    const bool is_absent = answer->starts_with("-" + std::string(one.file) + ":") &&
                           answer->find("No such file") != answer->npos;
    return {is_absent ? Loading::absent : Loading::broken, answer->substr(1)};
}

Finding look_at_nccl() {
    const char* const chosen = std::getenv("DDP_NCCL_LIBRARY");
    const std::string file = chosen != nullptr && *chosen != 0 ? chosen : "libnccl.so.2";
    const Loaded nccl = load({file.c_str(), "", nullptr, ask_nccl});
    if (nccl.state == Loading::loaded) return {"NCCL", Level::ok, nccl.says};
    return {"NCCL", Level::fail,
            file + " cannot be loaded: " +
                (nccl.state == Loading::absent ? "it is not there" : nccl.says),
            "backend nccl needs it: apt install libnccl2, LD_LIBRARY_PATH, or DDP_NCCL_LIBRARY"};
}

Finding look_at_driver() {
    const auto answer = in_child(library_limit, [] {
        void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) return std::string("libcuda.so.1 is not there");
        auto* const init = find<int(unsigned)>(library, "cuInit");
        auto* const version = find<int(int*)>(library, "cuDriverGetVersion");
        int number = 0;
        if (init == nullptr || version == nullptr)
            return std::string("libcuda.so.1 is no driver's");
        if (const int error = init(0); error != 0) return "cuInit: error " + std::to_string(error);
        return version(&number) == 0 ? "+" + cuda_version(number) : std::string("of no version");
    });
    if (answer && answer->starts_with('+')) {
        return {"driver", Level::ok, "CUDA up to " + answer->substr(1)};
    }
    return {"driver", Level::fail,
            answer ? *answer : std::string("the driver's library crashes or hangs"),
            "nvidia-smi and dmesg tell more; in a container: docker run --gpus all"};
}

// What nvidia-smi says of each: "NVIDIA H200, 550.54, 143771 MiB, Default".
Findings look_at_each() {
    const ProgramEnd end =
        run_program({"nvidia-smi", "--query-gpu=name,driver_version,memory.total,compute_mode",
                     "--format=csv,noheader"},
                    library_limit);
    if (end.exit_code == 127) return {{"GPUs", Level::note, "there is no nvidia-smi to ask"}};
    std::istringstream lines(end.output);
    Findings findings;
    if (end.exit_code != 0) {
        std::string said;
        for (std::string line; said.empty() && std::getline(lines, line);) said = line;
        return {{"GPUs", Level::fail,
                 "nvidia-smi: " + describe(end, library_limit) + ": " + shown(said),
                 "the driver is in trouble: dmesg"}};
    }
    for (std::string line; std::getline(lines, line) && findings.size() < most_gpus;) {
        if (line.empty()) continue;
        const bool is_closed = line.find("Prohibited") != line.npos;
        const bool is_exclusive = line.find("Exclusive") != line.npos;
        findings.push_back({"GPUs",
                            is_closed      ? Level::fail
                            : is_exclusive ? Level::note
                                           : Level::ok,
                            shown(line),
                            is_closed      ? "nvidia-smi -c DEFAULT, by root"
                            : is_exclusive ? "one process a GPU: no DDP_NCCL_SHARE"
                                           : ""});
    }
    if (findings.empty()) return {{"GPUs", Level::fail, "nvidia-smi lists none", "dmesg"}};
    return findings;
}

Findings look_at_links() {
    const ProgramEnd end = run_program({"nvidia-smi", "topo", "-m"}, library_limit);
    if (end.exit_code == 0) return judge_gpu_links(end.output);
    return {{"GPU links", Level::note, "nvidia-smi topo -m: " + describe(end, library_limit)}};
}

// In a child, as all that may wait for the driver.
std::optional<int> open_device(const std::string& root) {
    const auto answer = in_child(library_limit, [&] {
        const base::UniqueFd device(::open((root + "/dev/nvidia0").c_str(), O_RDWR | O_CLOEXEC));
        return std::to_string(device ? 0 : errno);
    });
    if (!answer) return std::nullopt;
    return std::stoi(*answer);
}

}  // namespace

Findings check_gpus(const std::string& root) {
    const auto count = launcher::count_gpus({root + "/dev", root + "/usr/lib/wsl/lib"});
    if (count == 0U) return {{"GPUs", Level::ok, "none here"}};
    Findings findings = look_at_each();
    if (findings.size() > 1) std::ranges::move(look_at_links(), std::back_inserter(findings));
    const auto trouble = open_device(root);
    if (!trouble || (*trouble != 0 && *trouble != ENOENT)) {
        findings.push_back({"GPUs", Level::fail,
                            std::string("/dev/nvidia0 cannot be opened: ") +
                                (trouble ? std::strerror(*trouble) : "it hangs"),
                            "the user needs the right to (group video), the container the device"});
    }
    findings.push_back(look_at_driver());
    findings.push_back(look_at_nccl());
    return findings;
}

Findings check_libraries() {
    Findings findings{{"libraries", Level::ok, "ddp " DDP_VERSION}};
    for (const Library& one : libraries) {
        const Loaded loaded = load(one);
        const std::string name = std::string(one.file) + " (" + one.use + ")";
        switch (loaded.state) {
            case Loading::loaded:
                findings.push_back({"libraries", Level::ok,
                                    loaded.says.empty() ? name : name + ": " + loaded.says});
                break;
            case Loading::absent:
                if (one.package == nullptr) break;
                findings.push_back({"libraries", Level::note, name + " is not there",
                                    std::string("where jobs want it: apt install ") + one.package});
                break;
            case Loading::broken:
                findings.push_back({"libraries", Level::warn, name + ": " + loaded.says,
                                    "reinstall it, or look at LD_LIBRARY_PATH"});
                break;
        }
    }
    return findings;
}

}  // namespace ddp::doctor
