#!/usr/bin/env python3
"""parity_judge.py over made answers: what fails a cell, and where the named differences are allowed. And the line to a driver."""
import copy
import math
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from parity_cells import BASE  # noqa: E402
from parity_driver import Driver, DriverEnded  # noqa: E402
from parity_judge import collectives_of, judge  # noqa: E402
from parity_matrix import Theirs  # noqa: E402

NAN = float("nan")


class Values(list):
    """What the judge needs of a tensor."""

    @property
    def shape(self):
        return [len(self)]

    def __sub__(self, other):
        return Values(x - y for x, y in zip(self, other, strict=True))

    def __mul__(self, factor):
        return Values(x * factor for x in self)

    def double(self):
        return self

    def square(self):
        return Values(x * x for x in self)

    def sum(self):
        return sum(list(self))


def gather(unit, size=1024, dtype="fp32", ranks=2):
    return ["all_gather", size, dtype, ranks, unit]


def reduction(unit, size=1024, dtype="fp32", ranks=2):
    return ["reduce_scatter", size, dtype, ranks, unit]


ROOT, FIRST, SECOND, THIRD = range(4)
STEP = [gather(ROOT), gather(FIRST), gather(SECOND), reduction(SECOND), reduction(FIRST), reduction(ROOT)]


def sides(collectives=STEP):
    """(shardscope's answer, PyTorch's) that are the same."""
    ours = dict(losses=[4.0, 3.0], norms=[2.0, 1.0], parameters=["layers.0.fc.weight", "head.weight"], values=[Values([1.0, 2.0]), Values([3.0, 4.0])],
                collectives=copy.deepcopy(collectives), units=[["", 2], ["layers.0", 2], ["layers.1", 2], ["layers.2", 2]])
    theirs = dict(copy.deepcopy(ours), collectives=[c[:4] for c in collectives])
    return ours, theirs


def passed(cell, ours, theirs):
    return judge({**BASE, **cell}, ours, theirs)[0]


def same(cell, mine, theirs):
    """(whether they pass, the text)"""
    ours, peer = sides(mine)
    return collectives_of({**BASE, **cell}, ours, dict(peer, collectives=theirs))


def bare(collectives):
    return [c[:4] for c in collectives]


class Numbers(unittest.TestCase):
    def changed(self, key, place, value, cell, side=0):
        both = sides()
        both[side][key][place] = value
        return passed(cell, *both)

    def test_equal_sides_pass(self):
        self.assertTrue(passed({}, *sides()))

    def test_what_is_no_number_fails_wherever_it_is(self):
        for side in (0, 1):
            for place in (0, 1):
                for what in (NAN, None, math.inf):
                    for key in ("losses", "norms"):
                        with self.subTest(side=side, place=place, what=what, key=key):
                            self.assertFalse(self.changed(key, place, what, {}, side))
                for what in (NAN, math.inf):
                    with self.subTest(side=side, place=place, what=what):
                        self.assertFalse(self.changed("values", place, Values([1.0, what]), {}, side))

    def test_fp32_passes_within_1e_5_and_fails_beyond(self):
        for key, value in (("losses", 3.0), ("norms", 1.0)):
            self.assertTrue(self.changed(key, 1, value * (1 + 9e-6), {}))
            self.assertFalse(self.changed(key, 1, value * (1 + 1.1e-5), {}))
            self.assertFalse(self.changed(key, 1, value * (1 - 1.1e-5), {}))
        self.assertTrue(self.changed("values", 1, Values([3.0, 4.0 + 5 * 9e-6]), {}))  # the norm of 3, 4 is 5
        self.assertFalse(self.changed("values", 1, Values([3.0, 4.0 + 5 * 1.1e-5]), {}))

    def test_bf16_passes_within_2e_2_and_norms_of_t5_within_4e_2(self):
        bf16 = {"precision": "bf16/fp32"}
        for key in ("losses", "norms"):
            self.assertTrue(self.changed(key, 0, sides()[1][key][0] * 1.019, bf16))
            self.assertFalse(self.changed(key, 0, sides()[1][key][0] * 1.021, bf16))
        self.assertTrue(self.changed("norms", 0, 2.0 * 1.039, {**bf16, "model": "t5"}))
        self.assertFalse(self.changed("norms", 0, 2.0 * 1.041, {**bf16, "model": "t5"}))
        self.assertFalse(self.changed("losses", 0, 4.0 * 1.021, {**bf16, "model": "t5"}))
        self.assertFalse(self.changed("norms", 0, 2.0 * 1.019, {"model": "t5"}))

    def test_a_weight_and_its_bias_are_measured_as_one(self):
        ours, theirs = sides()
        for side in (ours, theirs):
            side["parameters"] = ["head.weight", "head.bias"]
        theirs["values"][1] = Values([0.0, 0.0])
        ours["values"] = [Values([1.0, 2.0]), Values([0.0, 2e-5])]  # of a norm of 2.236
        self.assertTrue(passed({}, ours, theirs))
        ours["values"][1] = Values([0.0, 3e-5])
        self.assertFalse(passed({}, ours, theirs))

    def test_other_parameters_and_errors_fail(self):
        ours, theirs = sides()
        ours["parameters"][0] = "layers.0.fc.bias"
        self.assertFalse(passed({}, ours, theirs))
        ours, theirs = sides()
        ours["values"][0] = Values([1.0, 2.0, 3.0])
        self.assertFalse(passed({}, ours, theirs))
        self.assertFalse(passed({}, sides()[0], dict(error="it ended")))
        self.assertFalse(passed({}, dict(error="it ended"), sides()[1]))


class Collectives(unittest.TestCase):
    def test_the_same_pass(self):
        for layout in ("per_parameter", "flat"):
            self.assertTrue(same({"layout": layout}, STEP, bare(STEP))[0])

    def test_a_missing_one_fails_on_either_side(self):
        for layout in ("per_parameter", "flat"):
            for i in range(len(STEP)):
                short = STEP[:i] + STEP[i + 1:]
                self.assertFalse(same({"layout": layout}, short, bare(STEP))[0])
                self.assertFalse(same({"layout": layout}, STEP, bare(short))[0])

    def test_another_kind_type_number_of_ranks_or_order_fails(self):
        for layout in ("per_parameter", "flat"):
            for place, value in ((0, "all_reduce"), (2, "bf16"), (3, 4)):
                theirs = bare(STEP)
                theirs[1][place] = value
                self.assertFalse(same({"layout": layout}, STEP, theirs)[0])
        mine = [*STEP[:3], reduction(SECOND, 2048), *STEP[4:]]
        self.assertFalse(same({}, mine, bare([*STEP[:3], STEP[4], mine[3], STEP[5]]))[0])

    def test_flat_bytes_may_differ_by_padding_and_by_no_more(self):
        # 128 bytes before each of two parameters and at the end of each rank's shard.
        def padded(more, **cell):
            dtype = cell.pop("dtype", "fp32")
            mine = [gather(ROOT, 1024 + more, dtype), *STEP[1:]]
            return same({"layout": "flat", **cell}, mine, bare([gather(ROOT, 1024, dtype), *STEP[1:]]))[0]
        self.assertTrue(padded(4 * 128 - 4))
        self.assertFalse(padded(4 * 128))
        self.assertFalse(padded(-4))
        self.assertFalse(padded(4, layout="per_parameter"))
        # 128 bytes of bf16 are 256 of the same elements in fp32.
        self.assertTrue(padded(4 * 256 - 4, precision="bf16/fp32"))
        self.assertFalse(padded(4 * 256, precision="bf16/fp32"))
        self.assertFalse(padded(4 * 128, precision="bf16/fp32", dtype="bf16"))
        # What FSDP1 does not shard it pads to a multiple of the ranks.
        self.assertTrue(padded(-4, strategy="no_shard"))
        self.assertFalse(padded(-8, strategy="no_shard"))

    def test_padding_is_named(self):
        self.assertIn("1 differ by padding", same({"layout": "flat"}, [gather(ROOT, 1028), *STEP[1:]], bare(STEP))[1])


class Unused(unittest.TestCase):
    CELL = {"model": "chain", "shape": "unused"}   # layers.1 is
    MINE = [*STEP[:2], gather(THIRD), reduction(THIRD), reduction(SECOND), reduction(FIRST), reduction(ROOT)]
    THEIRS = bare([c for c in MINE if c != reduction(SECOND)])

    def test_a_reduction_of_the_unused_unit_may_be_missing_there(self):
        good, text = same(self.CELL, self.MINE, self.THEIRS)
        self.assertTrue(good)
        self.assertIn("1 differ by unused", text)

    def test_that_of_a_used_unit_may_not(self):
        mine = [c for c in self.MINE if c != reduction(SECOND)]
        self.assertFalse(same(self.CELL, [*mine[:4], reduction(THIRD), *mine[4:]], self.THEIRS)[0])
        self.assertFalse(same({"model": "chain", "shape": "twice"}, self.MINE, self.THEIRS)[0])
        self.assertFalse(same({}, self.MINE, self.THEIRS)[0])

    def test_nor_a_gather_of_the_unused_one(self):
        self.assertFalse(same(self.CELL, [*self.MINE[:2], gather(SECOND), *self.MINE[2:]], self.THEIRS)[0])

    def test_its_parameters_decay_here_alone(self):
        ours, theirs = sides(self.MINE)
        theirs["collectives"] = self.THEIRS
        for side in (ours, theirs):
            side["parameters"][0] = "layers.1.fc.weight"
        self.assertFalse(passed(self.CELL, ours, theirs))
        ours["values"][0] = theirs["values"][0] * (1 - 1e-3 * 0.1) ** 5
        self.assertTrue(passed(self.CELL, ours, theirs))
        self.assertFalse(passed({}, ours, theirs))


class Twice(unittest.TestCase):
    CELL = {"model": "chain", "shape": "twice"}
    AGAIN = ["all_gather", 512, "fp32", 2]
    MINE = [gather(ROOT), gather(FIRST, 512), gather(SECOND), reduction(SECOND), reduction(FIRST, 512), reduction(ROOT)]

    def theirs(self, times):
        return bare(self.MINE[:4]) + [self.AGAIN] * times + bare(self.MINE[4:])

    def test_fsdp2_may_gather_the_unit_once_more_in_a_backward(self):
        good, text = same(self.CELL, self.MINE, self.theirs(1))
        self.assertTrue(good)
        self.assertIn("1 differ by twice", text)
        self.assertFalse(same(self.CELL, self.MINE, self.theirs(2))[0])

    def test_as_often_as_there_are_micro_batches(self):
        every = {**self.CELL, "accumulate": "3/every"}
        self.assertTrue(same(every, self.MINE, self.theirs(3))[0])
        self.assertFalse(same(every, self.MINE, self.theirs(4))[0])

    def test_another_unit_another_cell_and_fsdp1_may_not(self):
        self.assertFalse(same(self.CELL, self.MINE, bare(self.MINE) + [["all_gather", 1024, "fp32", 2]])[0])
        self.assertFalse(same({}, self.MINE, self.theirs(1))[0])
        self.assertFalse(same({**self.CELL, "shape": "unused"}, self.MINE, self.theirs(1))[0])
        self.assertFalse(same({**self.CELL, "layout": "flat"}, self.MINE, self.theirs(1))[0])

    def test_what_micro_batches_left_is_reduced_again_where_they_leave_something(self):
        theirs = self.theirs(1) + [["reduce_scatter", 512, "fp32", 2]]
        self.assertTrue(same({**self.CELL, "accumulate": "3/last"}, self.MINE, theirs)[0])
        self.assertFalse(same({**self.CELL, "accumulate": "3/every"}, self.MINE, theirs)[0])
        self.assertFalse(same(self.CELL, self.MINE, theirs)[0])


class RootFirst(unittest.TestCase):
    MINE = [*STEP[:4], reduction(FIRST, 512), reduction(ROOT)]
    SWAPPED = bare([*MINE[:4], MINE[5], MINE[4]])

    def test_the_first_unit_may_be_reduced_behind_the_root_where_its_inputs_need_no_gradient(self):
        good, text = same({"model": "mlp"}, self.MINE, self.SWAPPED)
        self.assertTrue(good)
        self.assertIn("1 differ by root first", text)

    def test_and_nowhere_else(self):
        self.assertFalse(same({}, self.MINE, self.SWAPPED)[0])


class Lines(unittest.TestCase):
    def driver(self, body, **options):
        driver = Driver(sys.executable, "-c", body, **options)
        self.addCleanup(driver.close)
        return driver

    def test_a_line_is_answered_with_a_line(self):
        driver = self.driver("import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)")
        self.assertEqual([driver.ask({"a": 1}), driver.ask({"b": 2})], [{"A": 1}, {"B": 2}])
        self.assertEqual(driver.close(), 0)

    def test_one_that_ends_is_said_and_the_next_line_starts_another(self):
        driver = self.driver("import sys\nif 'die' in sys.stdin.readline(): sys.exit(7)\nprint('{}', flush=True); sys.stdin.read()")
        with self.assertRaisesRegex(DriverEnded, "ended with 7"):
            driver.ask("die")
        self.assertEqual(driver.ask("live"), {})

    def test_one_that_gives_no_answer_in_time_is_ended(self):
        driver = self.driver("import sys; sys.stdin.read()", answer_s=0.2)
        with self.assertRaisesRegex(DriverEnded, "ended with -9"):
            driver.ask({})

    def test_one_that_does_not_end_is_ended(self):
        driver = self.driver("import sys, time\nprint('{}', flush=True)\nwhile True: time.sleep(60)", end_s=0.2)
        driver.ask({})
        self.assertEqual(driver.close(), -9)


class Connection:
    """To a rank; `alive` or not."""

    def __init__(self, alive):
        self.alive, self.sent = alive, []

    def send(self, what):
        if not self.alive:
            raise BrokenPipeError
        self.sent.append(what)


class Ranks(unittest.TestCase):
    def test_ranks_of_which_one_has_died_are_started_again_and_asked(self):
        theirs = Theirs()
        worlds = [[Connection(True), Connection(False)], [Connection(True), Connection(True)]]

        def start(world):
            theirs.world, theirs.cells, theirs.ranks = world, 0, [(None, c) for c in worlds.pop(0)]
        theirs.start = start
        theirs.ask(BASE)
        self.assertEqual(worlds, [])
        self.assertEqual([[cell for cell, _ in c.sent] for _, c in theirs.ranks], [[BASE], [BASE]])


class VirtualMatrix(unittest.TestCase):
    """The script with a driver that gives one answer to one part of the cases."""

    def run_it(self, answer):
        with tempfile.TemporaryDirectory() as folder:
            driver = pathlib.Path(folder) / "driver"
            driver.write_text(f"#!{sys.executable}\nimport sys\nfor _ in sys.stdin: print('{answer}', flush=True)\n")
            driver.chmod(driver.stat().st_mode | stat.S_IXUSR)
            done = subprocess.run([sys.executable, HERE / "virtual_matrix.py", driver, "--part", "1/100"], capture_output=True, text=True, timeout=60)
            return done.returncode, done.stdout + done.stderr

    def test_cases_that_are_equal_pass(self):
        self.assertEqual(self.run_it('{"differences": []}')[0], 0)

    def test_a_difference_a_refusal_and_an_error_fail(self):
        for answer, text in (('{"differences": ["peak"]}', "peak"), ('{"refused": "[wrap] no"}', "refused by both"), ('{"error": "bad"}', "bad, at model=")):
            code, output = self.run_it(answer)
            self.assertEqual(code, 1)
            self.assertIn(text, output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
