// A worker that writes into what it shares with the launcher what it should not, and then ends with
// a code that the launcher has to report all the same.
//
//   scribble SEED CODE         random bytes, 8 at a time, at every offset of its control page's
//                              file, again and again for a second
//   scribble_at OFFSET SEED CODE    8 of them there, which stay for a second
//   scribble_once OFFSET SEED CODE  8 of them there, and the end at once
//   deep DEPTH CODE            an error file of so many nested lists
//   long BYTES CODE            an error file that long, sparse, that begins as a real one
//   held BYTES CODE            an error file with a message that long; after SIGUSR1 it stops
//   itself as
//                              a held worker does, and ends when it goes on
//
// A rank that RANK= names another number than 0 of waits to be stopped, but for "held".
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr unsigned lifetime_s = 120;
constexpr int cannot = 97;
constexpr int wrong_usage = 98;
constexpr std::chrono::milliseconds time_to_be_looked_at{1000};

std::string env(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

[[noreturn]] void wait_forever() {
    for (;;) ::pause();
}

struct Memory {
    unsigned char* bytes = nullptr;
    std::size_t size = 0;
};

Memory control_memory() {
    const int fd = std::atoi(env("DDP_CONTROL_FD").c_str());
    struct stat status {};
    if (::fstat(fd, &status) != 0) std::exit(cannot);
    const auto size = static_cast<std::size_t>(status.st_size);
    void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) std::exit(cannot);
    return {static_cast<unsigned char*>(memory), size};
}

void write_number(const Memory& memory, std::size_t offset, std::uint64_t number) {
    std::memcpy(memory.bytes + offset, &number, sizeof number);
}

void scribble(unsigned seed) {
    const Memory memory = control_memory();
    std::mt19937_64 random(seed);
    const auto end = Clock::now() + time_to_be_looked_at;
    do {
        for (std::size_t at = 0; at + 8 <= memory.size; ++at) write_number(memory, at, random());
    } while (Clock::now() < end);
}

void scribble_once(std::size_t offset, unsigned seed) {
    const Memory memory = control_memory();
    std::mt19937_64 random(seed);
    if (offset + 8 > memory.size) std::exit(cannot);
    write_number(memory, offset, random());
}

void scribble_at(std::size_t offset, unsigned seed) {
    scribble_once(offset, seed);
    const auto end = Clock::now() + time_to_be_looked_at;
    while (Clock::now() < end) ::usleep(1000);
}

std::FILE* open_error_file() {
    std::FILE* const file = std::fopen(env("TORCHELASTIC_ERROR_FILE").c_str(), "w");
    if (file == nullptr) std::exit(cannot);
    return file;
}

void write_deep(std::size_t depth) {
    std::FILE* const file = open_error_file();
    const std::string text = "{\"message\":\"x\",\"timestamp\":" + std::string(depth, '[') +
                             std::string(depth, ']') + "}";
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
}

void write_long(off_t bytes) {
    std::FILE* const file = open_error_file();
    std::fputs("{\"message\":\"x", file);
    std::fclose(file);
    if (::truncate(env("TORCHELASTIC_ERROR_FILE").c_str(), bytes) != 0) std::exit(cannot);
}

void write_message(std::size_t bytes) {
    std::FILE* const file = open_error_file();
    std::fprintf(file, "{\"message\":\"%s\"}", std::string(bytes, 'x').c_str());
    std::fclose(file);
}

}  // namespace

int main(int argc, char** argv) {
    ::alarm(lifetime_s);
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() < 3) return wrong_usage;
    const std::string_view verb = words[0];
    const unsigned long number = std::stoul(words[1]);
    const int code = std::stoi(words.back());
    if (verb == "held") {
        sigset_t go;
        sigemptyset(&go);
        sigaddset(&go, SIGUSR1);
        ::sigprocmask(SIG_BLOCK, &go, nullptr);
        write_message(number);
        std::printf("ready\n");
        std::fflush(stdout);
        int signal = 0;
        ::sigwait(&go, &signal);
        std::raise(SIGSTOP);
        return code;
    }
    if (env("RANK") != "0") wait_forever();
    if (verb == "scribble") {
        scribble(static_cast<unsigned>(number));
    } else if (verb == "scribble_at") {
        scribble_at(number, static_cast<unsigned>(std::stoul(words.at(2))));
    } else if (verb == "scribble_once") {
        scribble_once(number, static_cast<unsigned>(std::stoul(words.at(2))));
    } else if (verb == "deep") {
        write_deep(number);
    } else if (verb == "long") {
        write_long(static_cast<off_t>(number));
    } else {
        return wrong_usage;
    }
    return code;
}
