// TextOptions: "name=value,name=value" of a function of ddp.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace ddp::c_interface {

// Each read() takes one name, if it was given, else leaves the value alone.
class TextOptions {
public:
    // Throws UsageError, which names `function`, as all members: for what is not name=value, and
    // for a name given twice. Null: none.
    TextOptions(const char* function, const char* text);

    void read(const std::string& name, bool& value);  // 0, 1, false, true
    void read(const std::string& name, std::size_t& value);
    void read(const std::string& name, std::int64_t& value);
    void read(const std::string& name, double& value);
    void read(const std::string& name, std::string& value);
    void read(const std::string& name, std::chrono::milliseconds& value);  // seconds, above 0
    // After all: throws for a name that nobody has read.
    void finish() const;

private:
    template <class Number>
    void read_whole(const std::string& name, Number& value);
    bool take(const std::string& name, std::string& text);
    [[noreturn]] void refuse(const std::string& name, const std::string& text,
                             const std::string& wanted) const;

    std::string function_;
    std::map<std::string, std::string> given_;
    std::string known_;  // names that were asked for
};

}  // namespace ddp::c_interface
