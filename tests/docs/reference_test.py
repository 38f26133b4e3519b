"""The HTML pages of tools/reference.sh: each public name is documented, each link leads somewhere, and no page is wider than a phone's
or a desktop's screen."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/reference"))
try:
    import markdown  # noqa: F401, which html_pages needs
    subprocess.run(["doxygen", "--version"], stdout=subprocess.DEVNULL, check=True)
except (ImportError, OSError) as error:
    print("tools/install-deps.sh --interop installs it:", error)
    sys.exit(1 if "DDP_REQUIRE_INTEROP" in os.environ else 77)
import html_pages as pages  # noqa: E402
PAGES = ["index.html", "docs/launcher.html", "docs/benchmarks.html", "docs/from_pytorch.zh.html", "examples/13_c_trainer.c.html",
         "reference/index.html", "reference/annotated.html", "reference/classddp_1_1ProcessGroup.html", "reference/ddp_8h.html"]
HEADER = """// Thing: what it is.
#pragma once

class Thing {
public:
    int documented() const;  // said behind it
    // Said above it,
    // for two.
    int first() const { return 1; }
    int second(
        int number) const;

    int %s(const Thing& reference, void* pointer) const;

private:
    int hidden_ = 0;
};

// `code` of #1 <by name>:
//
//     Thing thing;
enum class Kind { one, two };
"""


class Reference(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.output = pathlib.Path(cls.folder.name)
        made = subprocess.run([ROOT / "tools/reference.sh", "--output", cls.output], stderr=subprocess.PIPE, text=True)
        assert made.returncode == 0, made.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def doxygen(self, header):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "thing.hpp"
            path.write_text(header)
            settings = (ROOT / "tools/reference/Doxyfile").read_text() + f"INPUT = {path}\nOUTPUT_DIRECTORY = {folder}\nGENERATE_TAGFILE =\n"
            made = subprocess.run(["doxygen", "-"], input=settings, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            return made, {file.name: file.read_text() for file in pathlib.Path(folder).glob("reference/*.html")}

    def test_a_name_without_a_comment_is_refused(self):
        made, _ = self.doxygen(HEADER % "bare")
        self.assertNotEqual(made.returncode, 0)
        self.assertRegex(made.stdout, r"error: Member bare\(")
        self.assertEqual(made.stdout.count("is not documented"), 1, made.stdout)

    def test_comments_are_the_house_s(self):
        made, pages = self.doxygen(re.sub(".*%s.*\n", "", HEADER))
        self.assertEqual(made.returncode, 0, made.stdout)
        page = pages["classThing.html"]
        for text in ("What it is.", "said behind it"):
            self.assertIn(text, page)
        self.assertEqual(page.count("Said above it, for two."), 4)  # in the list, too
        self.assertIn("<code>code</code> of #1 &lt;by name&gt;:", pages["thing_8hpp.html"])

    def test_pages_are_linked(self):
        page = (self.output / "docs/c_trainer.html").read_text()
        self.assertIn('href="../reference/ddp_8h.html"', page)
        self.assertIn('href="../examples/13_c_trainer.c.html"', page)
        self.assertIn('href="gpu.html#streams"', page)

    def test_a_link_that_leads_nowhere_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder)
            (output / "a.html").write_text('<a href="b.html#there">b</a> <a href="b.html#gone">b</a> <a href="c.html">c</a>')
            (output / "b.html").write_text('<h2 id="there">there</h2>')
            self.assertEqual(list(pages.faults_of(output)), ["a.html: no such place as b.html#gone", "a.html: c.html leads nowhere"])

    def test_a_page_s_link_to_what_is_not_there_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            root, output = pathlib.Path(folder) / "project", pathlib.Path(folder) / "output"
            (root / "docs").mkdir(parents=True)
            (root / "tools/reference").mkdir(parents=True)
            (root / "tools/reference/style.css").touch()
            output.mkdir()
            (output / "reference.tag").write_text("<tagfile/>")
            (root / "README.md").write_text("# A\n\n# A\n\n[1](#a-1) [2](docs) [3](docs/b.txt) [4](docs/gone.hpp)\n")
            (root / "docs/b.txt").write_text("b < c")
            site = pages.Site(root, output)
            site.make()
            self.assertEqual(site.lost, ["README.md: docs/gone.hpp leads nowhere"])
            own = [fault for fault in pages.faults_of(output) if "reference/" not in fault and ".html leads" not in fault]
            self.assertEqual(own, [])
            self.assertIn("<li>b.txt</li>", (output / "docs/index.html").read_text())
            self.assertIn("b &lt; c", (output / "docs/b.txt.html").read_text())

    def test_a_folder_of_others_is_left_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "reference").mkdir()
            made = subprocess.run([ROOT / "tools/reference.sh", "--output", folder], stderr=subprocess.PIPE, text=True)
            self.assertEqual(made.returncode, 2)
            self.assertIn("has other files", made.stderr)

    def test_no_page_is_wider_than_the_screen(self):
        browser = shutil.which("chromium-headless-shell")
        if browser is None and "DDP_REQUIRE_INTEROP" not in os.environ:
            self.skipTest("there is no chromium-headless-shell")
        for name in PAGES:
            page = (self.output / name).read_text()
            probe = (self.output / name).with_name("probe.html")
            script = "<script>document.title = document.documentElement.scrollWidth + ' of ' + innerWidth</script></body>"
            probe.write_text(page.replace("</body>", script))
            for width in (390, 1280):
                shown = subprocess.run(
                    [browser, "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", f"--window-size={width},900", "--dump-dom",
                     probe.as_uri()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60).stdout
                wide, screen = map(int, re.search(r"<title>(\d+) of (\d+)</title>", shown).groups())
                self.assertLessEqual(wide, screen, f"{name} at {width}")


if __name__ == "__main__":
    unittest.main()
