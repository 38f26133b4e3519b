// CallSite: the line of the program that starts a collective or a launch; the error that ends it on
// this rank names that line. As std::source_location, which not every compiler of C++20 has. A
// function of the program's own that starts collectives for others can pass their lines on:
//
//     void average(ProcessGroup& group, Tensor& loss, const CallSite& site = CallSite::here()) {
//         group.all_reduce(loss, ReduceOp::avg, {}, site).wait();
//     }
#pragma once

#include <cstdint>

namespace ddp {

class CallSite {
public:
    constexpr CallSite() = default;  // none: errors name no line
    // `file` is not copied: a literal's memory, as that of __FILE__.
    constexpr CallSite(const char* file, std::uint32_t line) : file_(file), line_(line) {}
    // As a default argument: the line of the call.
    static constexpr CallSite here(const char* file = __builtin_FILE(),
                                   std::uint32_t line = __builtin_LINE()) {
        return {file, line};
    }
    constexpr const char* file() const { return file_; }
    constexpr std::uint32_t line() const { return line_; }  // 0: none

private:
    const char* file_ = "";
    std::uint32_t line_ = 0;
};

}  // namespace ddp
