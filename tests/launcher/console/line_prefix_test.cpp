// The template before each line.
#include "launcher/console/line_prefix.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace ddp::launcher {
namespace {

const PrefixValues values{
    .role_name = "trainer", .rank = 11, .local_rank = 3, .hostname = "node7", .pid = 4711};

TEST(LinePrefix, ATemplateIsExpanded) {
    EXPECT_EQ(expand_prefix(torchrun_prefix_template, values), "[trainer3]:");
    EXPECT_EQ(expand_prefix(terminal_prefix_template, values), "[11] ");
    EXPECT_EQ(expand_prefix("$hostname/$pid $rank: ", values), "node7/4711 11: ");
    EXPECT_EQ(expand_prefix("", values), "");
    EXPECT_EQ(expand_prefix("plain", values), "plain");
}

TEST(LinePrefix, WhatIsNoVariableStays) {
    EXPECT_EQ(expand_prefix("${nobody} $nobody $ ${rank", values), "${nobody} $nobody $ ${rank");
    EXPECT_EQ(expand_prefix("$$rank $${rank}$", values), "$rank ${rank}$");
    EXPECT_EQ(expand_prefix("${} ${ra nk}", values), "${} ${ra nk}");
}

TEST(LinePrefix, ColoursDependOnTheRankAndEnd) {
    EXPECT_EQ(coloured("[0] ", 0), coloured("[0] ", 6));
    EXPECT_NE(coloured("[0] ", 0), coloured("[0] ", 1));
    EXPECT_TRUE(coloured("x", 2).ends_with("x\x1b[0m"));
}

class Variable {
public:
    Variable(const char* name, const char* value) : name_(name) {
        if (const char* before = std::getenv(name)) before_ = before;
        ::setenv(name, value, 1);
    }
    ~Variable() { ::setenv(name_, before_.c_str(), 1); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

private:
    const char* name_;
    std::string before_;
};

TEST(LinePrefix, NoColorAndADumbTerminalAreRespected) {
    const Variable plain("NO_COLOR", "");
    {
        const Variable terminal("TERM", "xterm");
        EXPECT_TRUE(colours_wanted());
        const Variable no_color("NO_COLOR", "1");
        EXPECT_FALSE(colours_wanted());
        EXPECT_TRUE(terminal_can_redraw());
    }
    const Variable dumb("TERM", "dumb");
    EXPECT_FALSE(colours_wanted());
    EXPECT_FALSE(terminal_can_redraw());
}

}  // namespace
}  // namespace ddp::launcher
