// What shells and `man` are told is what ddp-launch takes.
#include "manual/manual.hpp"
#include "manual/mdoc.hpp"

#include "launcher/inspect/inspect_options.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddp::manual {
namespace {

using launcher::OptionSpec;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Kind = ValueWords::Kind;

const OptionSpec& option(const char* name) { return launcher::find_option(name, name); }

TEST(Manual, HasEachOptionThatIsNotRefused) {
    const std::string bash = bash_completion() + " ";
    const std::string zsh = zsh_completion();
    const std::string fish = fish_completion();
    const std::string man = man_page("2026-11-30");
    int refused = 0;
    for (const OptionSpec& one : launcher::option_table()) {
        const std::string name = one.name;
        // As a whole word each.
        const std::vector<std::pair<const std::string*, std::string>> places{
            {&bash, "--" + name +
                        (one.is_flag()                                   ? ""
                         : one.alias[0] == '\0' && one.letter[0] == '\0' ? ") takes"
                                                                         : " | -")},
            {&zsh, "--" + name + (one.is_flag() ? "" : "=")},
            {&fish, " -l " + name + " "},
            {&man,
             "Fl Fl " + name + (one.is_flag() ? "\n" : " Ns = Ns Ar " + std::string(one.value))}};
        for (const auto& [text, word] : places) {
            if (one.apply == nullptr) {
                EXPECT_THAT(*text, AllOf(Not(HasSubstr("--" + name)), Not(HasSubstr("-l " + name)),
                                         Not(HasSubstr("Fl Fl " + name))));
            } else {
                EXPECT_THAT(*text, HasSubstr(word));
            }
        }
        refused += one.apply == nullptr ? 1 : 0;
    }
    EXPECT_GT(refused, 0);
    for (const launcher::InspectOption& one : launcher::inspect_options()) {
        const std::string name = one.name + 2;
        EXPECT_THAT(bash, HasSubstr("--" + name));
        EXPECT_THAT(zsh, HasSubstr("'--" + name));
        EXPECT_THAT(fish, HasSubstr("-n __ddp_launch_inspects -l " + name));
        EXPECT_THAT(man, HasSubstr(".It Fl Fl " + name));
    }
}

TEST(Manual, TellsWordsThatAreTypedFromNamesOfWhatVaries) {
    EXPECT_THAT(words_of(option("nproc-per-node")).choices, ElementsAre("gpu", "cpu", "auto"));
    EXPECT_THAT(words_of(option("stdin")).choices, ElementsAre("all", "none", "auto"));
    EXPECT_THAT(words_of(option("flight-recorder-signal")).choices,
                ElementsAre("USR1", "USR2", "none"));
    EXPECT_THAT(words_of(option("store-peers")).choices, ElementsAre("same-user", "any"));
    EXPECT_THAT(words_of(option("nnodes")).choices, IsEmpty());
    EXPECT_EQ(words_of(option("nnodes")).kind, Kind::anything);
    EXPECT_EQ(words_of(option("env")).kind, Kind::anything);
    EXPECT_EQ(words_of(option("standalone")).kind, Kind::flag);
    EXPECT_EQ(words_of(option("log-dir")).kind, Kind::folder);
    EXPECT_EQ(words_of(option("report")).kind, Kind::file);
    EXPECT_EQ(words_of(option("hosts")).kind, Kind::host);
    EXPECT_EQ(words_of(option("rsh")).kind, Kind::command);
}

// Each word that is completed is one that ddp-launch takes.
TEST(Manual, OffersNoWordThatIsRefused) {
    for (const OptionSpec* one : offered_options()) {
        for (const std::string& word : words_of(*one).choices) {
            launcher::Options options;
            const std::string label = std::string("--") + one->name;
            EXPECT_NO_THROW(one->apply(options, {label, word})) << label << "=" << word;
        }
    }
}

TEST(Manual, IsOfADate) {
    EXPECT_THAT(man_page("2026-02-03"), HasSubstr(".Dd February 3, 2026\n"));
    for (const char* wrong : {"", "2026", "2026-13-01", "2026-00-01", "2026-01-01x", "2026-02-31",
                              "2026-1-5", "-026-01-01", "2026/01/01", "today"}) {
        EXPECT_THROW(man_page(wrong), Error) << wrong;
    }
}

TEST(Manual, MakesThePageOfAProgramFromItsHelp) {
    const std::string help =
        "Does it,\nquickly. Twice.\n\nusage: it --fast=N [options]\n       run it "
        "NAME\n\noptions:\n"
        "  --json FILE   write\n                it\n  --fast        be\n  --long-name-of-one\n"
        "                3.5 is it\n  --fit exactly so\n\nExit code: 0.\n";
    EXPECT_EQ(help_page("it", "do it", help, "2026-02-03"),
              ".Dd February 3, 2026\n.Dt IT 1\n.Os\n.Sh NAME\n.Nm it\n.Nd do it\n.Sh SYNOPSIS\n"
              ".Nm it\n.Fl Fl fast Ns = Ns Ar N\n.Op Ar options\n.Nm run\n.Cm it\n.Ar NAME\n"
              ".Sh DESCRIPTION\nDoes it, quickly.\nTwice.\n.Pp\nExit code: 0.\n.Sh OPTIONS\n"
              ".Bl -tag -width Ds\n.It Fl Fl json Ar FILE\nwrite it.\n.It Fl Fl fast\nbe.\n"
              ".It Fl Fl long-name-of-one\n3.5 is it.\n.It Fl Fl fit Ar exactly\nso.\n.El\n"
              ".Sh SEE ALSO\n.Xr ddp-launch 1\n");
    EXPECT_THROW(help_page("it", "do it", "it: no such option\n", "2026-02-03"), Error);
}

TEST(Manual, QuotesWhatAShellWouldTakeForMore) {
    EXPECT_EQ(quoted("it's"), "'it'\\''s'");
    EXPECT_EQ(escaped("a:b]\\", "\\]:", "\\"), "a\\:b\\]\\\\");
    EXPECT_EQ(filled("\na\n@x@\nb @y@ @y@\n", {{"@x@", "1\n2\n"}, {"@y@", "3"}}),
              "a\n1\n2\nb 3 3\n");
}

}  // namespace
}  // namespace ddp::manual
