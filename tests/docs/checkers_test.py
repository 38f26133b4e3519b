#!/usr/bin/env python3
"""The scripts of this folder find what they are for: each difference that is put into a page gives
the one line that names it."""
import os
import pathlib
import tempfile
import unittest

import commands
import compare_pages
import page_rules
import promised_names
import tutorials
from pages import Section

ENGLISH = """# Page

[中文](page.zh.md). See [other](other.md) and [below](#one).

## One

`first` and `second`.

```cpp
int x = 1;
```

| option | meaning |
|---|---|
| `--a` | takes `N` |
| `--b` | nothing |
| `--c` | nothing |
"""
CHINESE = """# 页

[English](page.md)。见 [其他](other.zh.md) 和[下文](#一)。

## 一

`first` 与 `second`。

```cpp
int x = 1;
```

| 选项 | 含义 |
|---|---|
| `--a` | 取 `N` |
| `--b` | 无 |
| `--c` | 无 |
"""


class ComparePages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)

    def compare(self, old="", new=""):
        pathlib.Path("page.md").write_text(ENGLISH, "utf-8")
        pathlib.Path("page.zh.md").write_text(CHINESE.replace(old, new) if old else CHINESE, "utf-8")
        return compare_pages.compare("page.md", "page.zh.md")

    def test_pages_in_step_have_no_difference(self):
        self.assertEqual(self.compare(), [])

    def test_each_change_is_named(self):
        for old, new, line in [
                ("int x = 1;", "int x = 2;", "page.zh.md:9: this block differs from that of page.md:9"),
                ("| `--b` | 无 |\n", "", "page.zh.md:13: no row with `--b`"),
                ("`N`", "N", "page.zh.md:15: in this row N of page.md:15 is missing"),
                ("`second`", "`third`", "page.zh.md:5: in this section third is not in page.md:5"),
                ("other.zh.md", "another.md", "page.zh.md:1: the link other.md of page.md:1 is missing"),
                ("## 一", "### 一", "page.zh.md:5: a heading of level 3, but of level 2 at page.md:5"),
                ("`--c` | 无", "`--c` | 空", "page.zh.md:17: 空, but at page.zh.md:16 无: both are nothing"
                                             " in page.md:17"),
                ("`--c` | 无 |\n", "`--c` | 无 |\n\n## 二\n", "page.zh.md:19: only here: 二"),
                ("#一", "#二", "page.zh.md:3: no heading for #二"),
                ("(page.md)", "(page.html)", "page.zh.md: no link to page.md")]:
            self.assertIn(line, self.compare(old, new), new)

    def test_a_translation_that_nobody_compares_is_named(self):
        self.compare()
        self.assertEqual(compare_pages.main("."), 1)

HEADER = """// ddp::only_in_a_comment
#include <vector>
#define DDP_MACRO(x) \\
    in_a_macro(x)
namespace ddp {
class Error;
class [[nodiscard]] DDP_API Work final : public Base {
public:
    void wait(int parameter) const { in_a_body(); }
private:
    const char* text_ = "in_a_text { (";
};
enum class Kind : std::uint8_t { one = 1, two };
struct Op {
    enum Plain { sum };
    int member = 3;
};
template <class T>
concept HasState = requires(T object) {
    { object.in_a_concept() };
};
template <class Object>
requires(!std::same_as<Object, int>) Op make(Object& object, const Options& options = {});
namespace libtorch { inline int view() { return 1; } }
}  // namespace ddp
int outside();
"""


class PromisedNames(unittest.TestCase):
    names = promised_names.declared_in(HEADER)

    def problems(self, text):
        return promised_names.check_page("page.md", text, self.names, {"ddp/ddp.hpp", "ddp/torch/tensor.hpp"})

    def test_what_is_declared_is_found(self):
        for name in ("Error", "Work", "Work::wait", "Kind::two", "Op::Plain::sum", "Op::sum", "Op::member", "HasState",
                     "make", "libtorch::view"):
            self.assertEqual(self.problems(f"一行\n用 `ddp::{name}`（如此）"), [])

    def test_what_is_not_is_named(self):
        for name in ("only_in_a_comment", "in_a_macro", "wait", "Work::nodiscard", "Work::parameter", "Work::in_a_body",
                     "in_a_text", "Kind::three", "two", "sum", "HasState::in_a_concept", "view", "libtorch::Error",
                     "outside", "Options", "T::object", "Wor", "ddp::Work"):
            self.assertEqual(self.problems(f"text\n`ddp::{name}()`"), [f"page.md:2: include/ddp has no ddp::{name}"])

    def test_headers_are_looked_for(self):
        self.assertEqual(self.problems("`<ddp/ddp.hpp>`, [here](../include/ddp/torch/tensor.hpp), abcddp/x.hpp"), [])
        self.assertEqual(self.problems("#include <ddp/none.hpp>"), ["page.md:1: there is no include/ddp/none.hpp"])
        self.assertEqual(self.problems("[none](../include/ddp/none.h)"), ["page.md:1: there is no include/ddp/none.h"])

    def test_targets_of_cmake_count(self):
        self.assertIn(("ddp", "runtime"), promised_names.targets_below(Tutorials.root))


class Tutorials(unittest.TestCase):
    root = pathlib.Path(__file__).resolve().parents[2]

    def check(self, old="", new=""):
        text = (self.root / "docs/tutorials.map").read_text("utf-8")
        self.assertIn(old, text)
        rows, words = tutorials.parse(text.replace(old, new) if old else text)
        sources = tutorials.Sources(self.root)
        return tutorials.check_rows(rows, sources) + tutorials.check_words(words, sources)

    def test_the_map_is_complete(self):
        self.assertEqual(self.check(), [])

    def test_each_loss_is_named(self):
        for old, new, part in [
                ("row 7:", "row 6:", "nothing answers row 7"),
                ("block: x = x.to(device);", "block: x = x.to(nowhere);", "no line of a block"),
                ("text: Where is the output? |", "text: Where is the input? |", "does not say: Where is"),
                (", TwoDevicesExample.Prints", ", TwoDevicesExample.Print", "no test TwoDevicesExample"),
                ("example: 07_two_devices", "example: 05_ddp_tutorial", "does not run 05_ddp_tutorial"),
                ("example: 07_two_", "example: 07_three_", "no examples/07_three_devices.cpp"),
                ("锁页内存\n", "锁页内存, 没有的词\n", "lacks 没有的词"),
                ("指定GPU, ", "", "no section for the word 指定GPU"),
                ("words zh, 采样器", "words zh, 取样器", "has no section 取样器")]:
            self.assertIn(part, "\n".join(self.check(old, new)), new)

    def test_latin_words_are_found_as_words_only(self):
        self.assertTrue(tutorials.is_in("amp", "同步amp，"))
        self.assertTrue(tutorials.is_in("module.", "`module.fc`"))
        self.assertFalse(tutorials.is_in("amp", "an example"))


class Commands(unittest.TestCase):
    MAP = "# head\nrun: true\n  prints: yes\nnot run: false\n  because: it fails\n"

    def check(self, shown, text=MAP):
        return commands.check([("page.md:1", command) for command in shown], commands.parse(text))

    def test_a_command_without_its_comment_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder, "page.md")
            page.write_text("text\n```sh\n# all of it\ntrue   # a comment\n\nfalse #no\n```\n```\nnone\n```\n", "utf-8")
            self.assertEqual(commands.commands_in(page), [(4, "true"), (6, "false #no")])

    def test_each_loss_is_named(self):
        self.assertEqual(self.check(["true", "false"]), [])
        self.assertEqual(self.check(["true", "false", "ls"]), ["page.md:1: not in tests/docs/commands.map: ls"])
        self.assertEqual(self.check(["true"]), ["commands.map:4: no page shows false"])
        self.assertEqual(self.check(["true", "false"], self.MAP.replace("  because: it fails\n", "")),
                         ["commands.map:4: does not say why it is not run"])
        for text in ("runs: true", self.MAP + "run: true", "not run: a\n  prints: b", "  because: b"):
            self.assertRaises(SystemExit, commands.parse, text)

    def test_a_command_is_run_in_the_build_folder_and_judged(self):
        run = lambda command, *prints: commands.run(command, prints, "/", "/tmp")
        self.assertIsNone(run("echo build/bin rebuild build", "/tmp/bin rebuild /tmp"))
        self.assertIn("does not print no", run("echo yes", "yes", "no"))
        self.assertIn("exit code 3", run("exit 3"))


class PageRules(unittest.TestCase):
    def problems(self, text, name="page.md"):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            (root / "src").mkdir()
            (root / "src/a.cpp").write_text("void there(int);\n", "utf-8")
            (root / "other.md").write_text("# Other\n\n## Its part\n\n## Its part\n", "utf-8")
            (root / name).write_text(text, "utf-8")
            return (page_rules.check_links(root, root / name) + page_rules.check_functions(root, name, text)
                    + page_rules.check_lines(name, text))

    def test_what_is_there_is_found(self):
        self.assertEqual(self.problems("# `A` [b](other.md)!\n[x](other.md#its-part-1) [y](#a-b) [z](http://none)\n"
                                       "`[no](link)` `src/a.cpp:there`\n"), [])

    def test_each_loss_is_named(self):
        for text, problem in [("[x](none.md)", "page.md:1: no file none.md"),
                              ("[x](other.md#part)", "page.md:1: no heading for other.md#part"),
                              ("[x](#part)", "page.md:1: no heading for #part"),
                              ("\n`src/a.cpp:here`", "page.md:2: src/a.cpp has no here()"),
                              ("`src/b.cpp:there`", "page.md:1: no file src/b.cpp"),
                              ("x" * 161, "page.md:1: 161 columns, more than 160")]:
            self.assertEqual(self.problems(text), [problem])
        self.assertEqual(self.problems("a\n" * 121, "README.md"), ["README.md: 121 lines, more than 120"])

    def flow(self, *rows):
        section = Section(1, 3, "A flow", list(enumerate(["| step | room | function |", "|---|---|---|", *rows], 2)))
        return page_rules.check_flows("page.md", [section])

    def test_a_flow_passes_few_rooms_and_names_them(self):
        self.assertEqual(self.flow("| a | agent | `launcher/agent/a.cpp:b` |", "| | | `launcher/agent/c.cpp:d` |",
                                   "| e | backends/shm | `runtime/backends/shm/wait/f.cpp:g`, `include/ddp/h.hpp:i` |"), [])
        self.assertEqual(self.flow("| a | front | `launcher/agent/a.cpp:b` |"),
                         ["page.md:4: launcher/agent/a.cpp is not in front"])
        self.assertEqual(self.flow("| a | a, b, c | |", "| d | d, e, f | |"), ["page.md:1: 6 rooms, more than 5"])


if __name__ == "__main__":
    unittest.main()
