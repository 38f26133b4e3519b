// What a worker can leave in its error file, as the agent reads it and hands it on. Input: the
// file.
#include "contract/error_file.hpp"
#include "fuzz/seeds.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace {

using namespace ddp::contract;

// Two files in a folder of this process, which fuzz.sh removes.
struct Files {
    std::string worker, users;
    int fd;
    Files() {
        const std::string folder = std::filesystem::temp_directory_path();
        worker = folder + "/worker-" + std::to_string(::getpid()) + ".json";
        users = folder + "/users-" + std::to_string(::getpid()) + ".json";
        fd = ::open(worker.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0) std::abort();
    }
};

std::string nested(const char* open, const char* close, int depth) {
    std::string text = "{\"message\":\"x\",\"timestamp\":";
    for (int i = 0; i < depth; ++i) text += open;
    text += "1";
    for (int i = 0; i < depth; ++i) text += close;
    return text + "}";
}

}  // namespace

std::vector<std::string> ddp::fuzz::seeds() {
    return {
        R"({"message": {"message": "TypeError: x", "extraInfo": {"py_callstack": "a\nb", "timestamp": "1700000000", "peer": 1}}})",
        R"({"message": "text", "timestamp": 10})",
        R"({"message": {"message": {"message": "deep"}, "errorCode": 3}, "timestamp": 1.5e9})",
        R"({"message": {"message": ""}})",
        R"({"message": 3, "extraInfo": {"peer": 99999999999999999999, "timestamp": "-1"}})",
        R"([1, 2, "\ud800", null, true])",
        nested("[", "]", 12'000),
        nested("{\"a\":", "}", 6'000),
    };
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const Files files;
    if (::pwrite(files.fd, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
    if (::ftruncate(files.fd, static_cast<off_t>(size)) != 0) std::abort();
    const auto report = read_error_file(files.worker);
    if (report && report->message.empty()) std::abort();
    // What is handed on can be read again, and says the same.
    if (copy_error_file(files.worker, files.users, 3, {"made up"}) != 0) std::abort();
    const auto copy = read_error_file(files.users);
    if (!copy || (report && report->message.empty() != copy->message.empty())) std::abort();
    return 0;
}
