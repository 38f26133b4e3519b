// A program that has its own spdlog: the names of the real one, other layouts, other results. If
// ddp's copy shared these symbols, the linker would merge them and one of the two would run the
// other's code.
#include <ddp/ddp.hpp>

#include <cstdio>
#include <string>

namespace spdlog {

class logger {
public:
    explicit logger(std::string) : canary_{} { canary_[0] = 12345; }
    virtual ~logger() = default;
    virtual void log(int level) { canary_[1] += level; }
    virtual void flush() { canary_[2] = 99; }
    long sum() const { return canary_[0] + canary_[1] + canary_[2]; }

private:
    long canary_[64];
};

namespace details {
class registry {
public:
    static registry& instance() {
        static registry one;
        return one;
    }
    int answer = 42;
};
}  // namespace details

inline logger* default_logger_raw() {
    static logger one("other");
    return &one;
}

}  // namespace spdlog

int main() {
    spdlog::default_logger_raw()->log(1);
    auto group = ddp::init_process_group();  // logs a line at debug
    spdlog::default_logger_raw()->flush();
    const bool own_code_ran = spdlog::default_logger_raw()->sum() == 12345 + 1 + 99 &&
                              spdlog::details::registry::instance().answer == 42;
    return own_code_ran && group.all_reduce(5) == 5 ? 0 : 1;
}
