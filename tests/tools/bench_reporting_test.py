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

    def verdict(self, best, over):
        measure = reporting.judge("m", {"a": 0.9, "b": 2.0}, 1, floors={"a": (best, over)})
        self.assertFalse(measure.met)
        return reporting.verdict_of(measure)

    def test_at_the_floor_is_only_what_nobody_could_meet_and_is_near_it(self):
        self.assertEqual(self.verdict(0.99, 1.1), "at the floor in 1 of 2")
        self.assertEqual(self.verdict(0.99, 1.2), "**missed** in 1 of 2", "too far above it")
        self.assertEqual(self.verdict(1.01, 1.1), "**missed** in 1 of 2", "it could be met")
        self.assertEqual(self.verdict(0.99, None), "**missed** in 1 of 2")
        self.assertEqual(self.verdict(None, 1.1), "**missed** in 1 of 2")

    def test_what_is_met_stays_met_beside_a_floor(self):
        measure = reporting.judge("m", {"a": 2.0}, 1, floors={"a": (0.5, 1.0)})
        self.assertEqual(reporting.verdict_of(measure), "met")

    def test_at_best_is_the_worst_rows(self):
        floors = {"a": (3.0, 1.5), "b": (9.0, 1.0)}
        measures = [reporting.judge("m", {"a": 2.0, "b": 5.0}, 1, floors=floors)]
        self.assertEqual(measures[0].at_best, 3.0)
        self.assertIn("| at best |", reporting.measures_table(measures)[0])
        plain = [reporting.judge("m", {"a": 2.0}, 1)]
        self.assertNotIn("at best", reporting.measures_table(plain)[0])


unittest.main()
