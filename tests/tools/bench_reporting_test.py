#!/usr/bin/env python3
"""bench_reporting_test.py TOOLS_BENCH: the part of the benchmark scripts that both write with."""
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv.pop(1))
import reporting  # noqa: E402


class Sections(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "page.md")

    def tearDown(self):
        self.folder.cleanup()

    def section(self, name):
        with open(self.path) as file:
            return reporting.section_of(file.read(), name)

    def test_a_new_section_keeps_the_other(self):
        reporting.write_section(self.path, "start", ["fast"])
        reporting.write_section(self.path, "collectives", ["busy", "", "bus"])
        self.assertEqual(self.section("start"), "fast")
        self.assertEqual(self.section("collectives"), "busy\n\nbus")

    def test_a_section_is_replaced_and_the_page_keeps_its_order(self):
        reporting.write_section(self.path, "start", ["old"])
        reporting.write_section(self.path, "collectives", ["busy"])
        reporting.write_section(self.path, "start", ["new"])
        with open(self.path) as file:
            text = file.read()
        self.assertNotIn("old", text)
        self.assertLess(text.index("busy"), text.index("new"))
        self.assertEqual(text.count("# Benchmarks"), 1)

    def test_the_same_words_make_the_same_page(self):
        reporting.write_section(self.path, "collectives", ["busy", ""])
        with open(self.path) as file:
            before = file.read()
        reporting.write_section(self.path, "collectives", ["busy", ""])
        with open(self.path) as file:
            self.assertEqual(file.read(), before)


class Judgements(unittest.TestCase):
    def test_the_worst_row_decides(self):
        measure = reporting.judge("m", {"a": 3.0, "b": 5.0, "c": None}, at_most=4)
        self.assertEqual((measure.met, measure.worst, measure.where), (False, 5.0, "b"))
        self.assertEqual((measure.rows, measure.missed), (2, 1))

    def test_faster_is_not_as_fast(self):
        self.assertFalse(reporting.judge("m", {"a": 1.0}, 1, strictly=True).met)
        self.assertTrue(reporting.judge("m", {"a": 1.0}, 1).met)

    def test_nothing_measured_is_not_met(self):
        self.assertFalse(reporting.judge("m", {"a": None}, 1).met)


unittest.main()
