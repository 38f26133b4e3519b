#!/usr/bin/env python3
"""bench_reporting_test.py TOOLS_BENCH: the part of the benchmark scripts that both write with."""
import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv.pop(1))
sys.path.append(os.path.join(sys.path[0], "peers"))
sys.path.append(os.path.join(sys.path[0], "start"))
import against_report  # noqa: E402
import plan  # noqa: E402
import reporting  # noqa: E402
import results  # noqa: E402
import run  # noqa: E402


class Sections(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "page.md")

    def tearDown(self):
        self.folder.cleanup()

    def section(self, name, maker=""):
        with open(self.path) as file:
            return reporting.section_of(file.read(), name, maker)

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

    def test_a_run_on_one_makers_processor_keeps_the_others(self):
        reporting.write_section(self.path, "collectives", ["## Busy", "slow"], "Intel")
        reporting.write_section(self.path, "collectives", ["## Busy", "old"], "AMD")
        reporting.write_section(self.path, "start", ["fast"])
        reporting.write_section(self.path, "collectives", ["## Busy", "new"], "AMD")
        self.assertEqual(self.section("collectives", "AMD"), "## Busy, on AMD\nnew")
        self.assertEqual(self.section("collectives", "Intel"), "## Busy, on Intel\nslow")
        self.assertEqual(self.section("start"), "fast")

    def test_the_same_words_make_the_same_page(self):
        reporting.write_section(self.path, "collectives", ["busy", ""])
        with open(self.path) as file:
            before = file.read()
        reporting.write_section(self.path, "collectives", ["busy", ""])
        with open(self.path) as file:
            self.assertEqual(file.read(), before)


class Against(unittest.TestCase):
    @staticmethod
    def case_of(new, old=(100, 100, 100, 100), again=(104, 96, 102, 99)):
        case = against_report.Case("start of 8")
        for times in zip(new, old, again):
            case.add(dict(zip(("new", "old", "old again"), times)))
        return case

    def test_what_the_old_build_differs_from_itself_by_is_inside(self):
        self.assertEqual(self.case_of([103, 98, 101, 102]).verdict(), "inside")

    def test_more_is_outside_and_says_to_which_side(self):
        self.assertEqual(self.case_of([111, 109, 108, 112]).verdict(), "outside: slower")
        self.assertEqual(self.case_of([88, 91, 90, 90]).verdict(), "outside: faster")

    def test_the_spread_is_the_same_whichever_old_one_is_called_again(self):
        low, high = self.case_of([100] * 4).spread()
        self.assertAlmostEqual(low * high, 1, places=2)
        self.assertLess(low, 1)

    def test_a_round_in_which_one_failed_does_not_count(self):
        case = self.case_of([100] * 4)
        case.add({"new": 500, "old": 100})
        self.assertEqual(case.rounds(), 4)


class PeersOfThePackageIndex(unittest.TestCase):
    def contestants(self, collective, ranks, wheels):
        group = plan.Group(collective, ranks, [4], contestants=["ddp user", "MPICH"])
        return plan.add_wheels(group, wheels).contestants[2:]

    def test_take_part_where_they_can(self):
        wheels = ["Intel MPI", "oneCCL"]
        self.assertEqual(self.contestants("all_reduce", 2, wheels), wheels)
        self.assertEqual(self.contestants("gather", 2, wheels), ["Intel MPI"])
        self.assertEqual(self.contestants("all_reduce", 2, []), [])

    def test_intel_mpi_also_waits_where_ranks_share_cores(self):
        self.assertEqual(self.contestants("all_reduce", 4, ["Intel MPI"]),
                         ["Intel MPI, waits", "Intel MPI"])

    def test_every_contestant_of_every_group_can_be_started_and_is_a_peer(self):
        tools = dict.fromkeys(["ddp-launch", "ddp-bench", "openmpi", "mpich", "gloo", "python",
                               "torch"], "program")
        for name in plan.WHEELS:
            tools |= {name: "/root", name + " driver": "driver"}
        ours = {"ddp user", "ddp shared", "ddp adopted", "Gloo", "PyTorch"}
        for group in plan.make_groups(False, True, True, list(plan.WHEELS)):
            for label in group.contestants:
                self.assertTrue(plan.contestant(label, tools, group, 2).command)
                self.assertIn(label, ours | set(results.PEERS))


class OnlySomeRows(unittest.TestCase):
    def test_the_others_are_kept_as_they_were(self):
        rows = [{"facts": True}]
        rows += [{"collective": "all_reduce", "ranks": 2, "dtype": "float32", "bytes": size}
                 for size in (4, 64, 128)]
        rows += [{"collective": "reduce", "ranks": 2, "dtype": "float32", "bytes": 4},
                 {"problem": "time-out", "collective": "all_reduce", "ranks": 2, "sizes": [4, 64]},
                 {"problem": "time-out", "collective": "all_reduce", "ranks": 4, "sizes": [4, 64]}]
        with tempfile.NamedTemporaryFile("w+") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            kept = run.kept_rows(file.name, [plan.Group("all_reduce", 2, [4, 64])])
        self.assertEqual([json.loads(line) for line in kept], [rows[3], rows[4], rows[6]])


class Judgements(unittest.TestCase):
    def test_the_worst_row_decides(self):
        measure = reporting.judge("m", {"a": 3.0, "b": 5.0, "c": None}, at_most=4)
        self.assertEqual((measure.met, measure.worst, measure.where), (False, 5.0, "b"))
        self.assertEqual((measure.rows, measure.missed), (2, ["b: 5.000x"]))

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
        row = "in 1 of 2 (a: 0.900x"
        self.assertEqual(self.verdict(0.99, 1.1), f"at the floor {row}, at best 0.990x)")
        self.assertEqual(self.verdict(0.99, 1.2), f"**missed** {row}, at best 0.990x)")
        self.assertEqual(self.verdict(1.01, 1.1), f"**missed** {row}, at best 1.010x)")
        self.assertEqual(self.verdict(0.99, None), f"**missed** {row}, at best 0.990x)")
        self.assertEqual(self.verdict(None, 1.1), f"**missed** {row})")

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


class PeersResults(unittest.TestCase):
    key = ("all_reduce", 2, "float32", 1024)

    def results(self, *rows):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            for row in rows:
                whole = {"collective": "all_reduce", "ranks": 2, "dtype": "float32", "bytes": 1024,
                         "wrong": 0, "near": True, "round": 0} | row
                file.write(json.dumps(whole) + "\n")
            file.flush()
            return results.Results(file.name)

    def test_the_median_process_stands_for_its_round(self):
        found = self.results(*({"contestant": "MPICH", "time_us": us} for us in (9, 2, 4)),
                             {"contestant": "MPICH", "time_us": 8, "round": 1},
                             {"contestant": "MPICH", "time_us": 6, "round": 1, "near": False})
        self.assertEqual(found.times(self.key, "MPICH"), {0: 4, 1: 6})
        self.assertEqual((found.rows, found.far), (5, 1))

    def test_a_ratio_is_of_rounds_and_against_the_best_of_each(self):
        found = self.results(*({"contestant": who, "round": number, "time_us": us}
                               for who, times in (("Open MPI", (6, 9, 8)), ("MPICH", (9, 6, 9)),
                                                  ("ddp user", (1, 2, 4)))
                               for number, us in enumerate(times)))
        self.assertEqual(found.ratio(self.key, results.PEERS, "ddp user"), 3)

    def test_what_took_longer_than_we_did_bounds_nobody(self):
        for floor, bare, bound in ((2, 4, 4), (4, 2, 4), (2, 7, 2), (7, 2, 2)):
            found = self.results({"contestant": "ddp user", "time_us": 5, "floor_us": floor,
                                  "bare_us": bare})
            self.assertEqual(found.bounds(self.key, "ddp user"), {0: bound})
        beaten = self.results({"contestant": "ddp user", "time_us": 5, "bare_us": 7})
        self.assertEqual(beaten.bounds(self.key, "ddp user"), {})

    def test_a_miss_that_beats_its_bare_loop_is_missed(self):
        found = self.results({"contestant": "ddp user", "time_us": 5, "bare_us": 7},
                             {"contestant": "MPICH", "time_us": 8})
        ratio = found.ratio(self.key, results.PEERS, "ddp user")
        floors = {"a": found.at_floor(self.key, results.PEERS, "ddp user")}
        self.assertEqual(reporting.verdict_of(reporting.judge("m", {"a": ratio}, 1.8, floors=floors)),
                         "**missed** in 1 of 1 (a: 1.600x)")

    def test_wrong_elements_of_a_run_that_failed_count(self):
        self.assertEqual(self.results({"problem": "exit 1", "wrong": 3}).wrong, 3)


unittest.main()
