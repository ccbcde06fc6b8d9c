"""Each check of scripts/experiments over made rows: it passes where the claim holds, and fails where one thing is as the claim denies."""
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "experiments"))
import claims   # noqa: E402
import results  # noqa: E402

MS = 1_000_000
WIRE = {"wire": "200us,200MB/s", "world": "2"}   # a buffer of 2 MB takes 0.2 + 5 ms
FWD, BWD, RS = "exposed_all_gather_forward", "exposed_all_gather_backward", "exposed_reduce_scatter"


def step(**milliseconds):
    return {c: int(milliseconds.get(c, 0) * MS) for c in results.CLASSES}


def case(axes, took=None, steps=(), **more):
    made = results.Case(axes={k: str(v) for k, v in axes.items()}, steps=list(steps), settings=dict(WIRE), **more)
    if took is not None:
        made.samples = [int(took * MS), int(took * 3 * MS)]   # a disturbed repetition beside a calm one
    return made


def oom(axes, units=1, reason="rank 0 ran out of memory: root, backward, activations: a request"):
    return case(axes, status="oom", reason=reason, units=[unit()] * units)


def unit(name="u", size=2_000_000, parameters=500_000):
    return results.Unit(name, parameters, size, size)


class Rows(unittest.TestCase):
    def shows(self, finding):
        self.assertEqual(finding.verdict, claims.SHOWS, finding)

    def fails(self, finding):
        self.assertEqual(finding.verdict, claims.FAIL, finding)


class LeastDisturbed(unittest.TestCase):
    def test_the_step_that_nothing_disturbed_counts(self):
        c = case({}, 10, [step(**{FWD: 9, BWD: 1}), step(**{FWD: 2, BWD: 7}), step(**{FWD: 30, BWD: 0})])
        self.assertEqual(c.least(FWD), 2 * MS)
        self.assertEqual(c.least(FWD, BWD), 9 * MS)
        self.assertEqual(c.step_ns, 10 * MS)

    def test_wire_times_are_latency_and_this_ranks_share_of_the_bytes(self):
        c = case({})
        self.assertAlmostEqual(claims.wire_ns(c, 2_000_000), 5.2 * MS)
        c.settings = {"wire": "1ms,1Gbit/s", "world": "4"}
        self.assertAlmostEqual(claims.wire_ns(c, 1_000_000), 7 * MS)

    def test_a_case_that_is_not_there_is_not_a_verdict(self):
        with self.assertRaises(claims.NotComparable):
            claims.measured([oom({"wrap": "block"})], wrap="block")
        with self.assertRaises(claims.NotComparable):
            claims.case_of([], wrap="block")


class TooFine(Rows):
    def rows(self, finest, waiting=True):
        grown = {BWD: finest - 10} if waiting else {"compute": finest - 10}
        return [case({"wrap": "block"}, 10, [step(optimizer=10)]),
                case({"wrap": "class:Linear,LlamaRMSNorm"}, finest, [step(optimizer=10, **grown)])]

    def test_twice_the_step_by_waiting_shows(self):
        self.shows(claims.too_fine(self.rows(20)))

    def test_less_than_twice_fails(self):
        self.fails(claims.too_fine(self.rows(19)))

    def test_twice_by_arithmetic_fails(self):
        self.fails(claims.too_fine(self.rows(30, waiting=False)))


class TooCoarse(Rows):
    def fit(self, wrap, units):
        return case({"wrap": wrap}, 10, peak_bytes=1 << 20, units=[unit()] * units)

    def test_out_of_memory_up_to_a_boundary_shows(self):
        self.shows(claims.too_coarse([self.fit("block", 9), oom({"wrap": "root"}), self.fit("sublayer", 17), oom({"wrap": "blocks:4"}, 3)]))

    def test_everything_fits_fails(self):
        self.fails(claims.too_coarse([self.fit("block", 9), self.fit("root", 1)]))

    def test_nothing_fits_fails(self):
        self.fails(claims.too_coarse([oom({"wrap": "block"}, 9), oom({"wrap": "root"})]))

    def test_a_coarse_case_that_fits_beyond_the_boundary_fails(self):
        self.fails(claims.too_coarse([self.fit("root", 1), oom({"wrap": "blocks:4"}, 3), self.fit("block", 9)]))

    def test_out_of_memory_without_a_cause_fails(self):
        self.fails(claims.too_coarse([self.fit("block", 9), oom({"wrap": "root"}, reason="killed")]))

    def test_a_crash_is_not_compared(self):
        with self.assertRaises(claims.NotComparable):
            claims.too_coarse([self.fit("block", 9), case({"wrap": "root"}, status="crashed")])


class PerBlock(Rows):
    # Root and four blocks of 5.2 ms each: 83.2 - 10.4 on the wire, 20.8 of it at the two ends.
    def rows(self, exposed, whole=60):
        units = [unit("root"), *(unit(f"b{i}") for i in range(4))]
        return [case({"wrap": "block"}, 100, [step(compute=50, **{FWD: exposed / 2, RS: exposed / 2})], units=units),
                case({"wrap": "root"}, 150, [step(compute=50, **{FWD: whole})], units=[unit("root")])]

    def test_only_the_ends_exposed_shows(self):
        self.shows(claims.per_block(self.rows(20.8)))
        self.shows(claims.per_block(self.rows(24)))

    def test_a_gather_more_exposed_in_each_pass_fails(self):
        self.fails(claims.per_block(self.rows(20.8 + 2 * 5.2)))

    def test_no_better_than_one_unit_fails(self):
        self.fails(claims.per_block(self.rows(21, whole=20)))

    def test_unlike_blocks_are_not_compared(self):
        rows = self.rows(20.8)
        rows[0].units[2] = unit("b1", size=4_000_000)
        with self.assertRaises(claims.NotComparable):
            claims.per_block(rows)


class ForwardPrefetch(Rows):
    def rows(self, on, one_on=30.0):
        units = [unit("root"), *(unit(f"b{i}") for i in range(4))]
        return [case({"wrap": "block", "forward_prefetch": 0}, 1, [step(**{FWD: 26})], units=units),
                case({"wrap": "block", "forward_prefetch": 1}, 1, [step(**{FWD: on})], units=units),
                case({"wrap": "root", "forward_prefetch": 0}, 1, [step(**{FWD: 30})], units=units[:1]),
                case({"wrap": "root", "forward_prefetch": 1}, 1, [step(**{FWD: one_on})], units=units[:1])]

    def test_the_first_two_gathers_left_shows(self):
        self.shows(claims.forward_prefetch(self.rows(10.4)))

    def test_half_of_it_hidden_fails(self):
        self.fails(claims.forward_prefetch(self.rows(18)))

    def test_nothing_hidden_fails(self):
        self.fails(claims.forward_prefetch(self.rows(26)))

    def test_a_gain_without_a_next_unit_fails(self):
        self.fails(claims.forward_prefetch(self.rows(10.4, one_on=15)))


class BackwardPrefetch(Rows):
    def rows(self, none=40, post=22, pre=2):
        units = [unit("root"), *(unit(f"b{i}") for i in range(4))]
        return [case({"backward_prefetch": n}, 1, [step(**{BWD: v})], units=units) for n, v in (("none", none), ("post", post), ("pre", pre))]

    def test_none_post_pre_in_this_order_shows(self):
        self.shows(claims.backward_prefetch(self.rows()))

    def test_post_like_none_fails(self):
        self.fails(claims.backward_prefetch(self.rows(post=38)))

    def test_pre_like_post_fails(self):
        self.fails(claims.backward_prefetch(self.rows(pre=20)))

    def test_none_below_what_the_wire_takes_fails(self):
        self.fails(claims.backward_prefetch(self.rows(none=20, post=10)))


class SizeBased(Rows):
    def rows(self, t5=70, classifier=60):
        out = []
        for model, sized in (("t5", t5), ("embedding-classifier", classifier)):
            out += [case({"model": model, "wrap": wrap}, 300, [step(compute=100, **{FWD: waits})], peak_bytes=1, units=[unit(name)])
                    for wrap, waits, name in (("block", 100, "b"), ("size:50000", 150, "u"), ("size:150000", 10, "b"), ("size:500000", sized, "s"))]
        return out

    def test_one_size_faster_for_both_shows(self):
        self.shows(claims.size_based(self.rows()))

    def test_one_model_without_a_gain_fails(self):
        """The same units under another name are no gain, whatever they took."""
        self.fails(claims.size_based(self.rows(t5=95)))
        self.fails(claims.size_based(self.rows(classifier=120)))

    def test_a_size_that_did_not_run_is_not_compared(self):
        with self.assertRaises(claims.NotComparable):
            claims.size_based([*self.rows(), oom({"model": "t5", "wrap": "size:9"})])


class MixedPlan(Rows):
    def rows(self, sharded=(60, 150), replicated=(None, None), mixed=(60, 90)):
        out = []
        for name, waits in (("table_replicated", mixed), ("all_sharded", sharded), ("all_replicated", replicated)):
            for accumulate, wait in zip((1, 4), waits):
                axes = {"wrap": f"plan:plans/{name}.yaml", "accumulate": accumulate}
                out.append(oom(axes) if wait is None else case(axes, 200, [step(**{FWD: wait - 10, "memory_wait": 10})]))
        return out

    def test_better_with_one_micro_batch_too_shows(self):
        self.shows(claims.mixed_plan(self.rows(sharded=(80, 150))))

    def test_better_with_several_alone_is_the_other_finding(self):
        found = claims.mixed_plan(self.rows())
        self.assertEqual(found.verdict, claims.DIFFERS)
        self.assertIn("dense", found.text)

    def test_no_better_than_sharded_fails(self):
        self.fails(claims.mixed_plan(self.rows(sharded=(60, 92))))

    def test_a_replicated_plan_that_fits_and_waits_less_fails(self):
        self.fails(claims.mixed_plan(self.rows(replicated=(20, 20))))

    def test_a_mixed_plan_that_does_not_fit_fails(self):
        self.fails(claims.mixed_plan(self.rows(mixed=(60, None))))


class EmbeddingInRoot(Rows):
    def rows(self, default=2 * 800 + 8, peak=10):
        sizes = {"block": default, "class:LlamaDecoderLayer": 1608, "class:LlamaDecoderLayer,Embedding": 808,
                 "class:LlamaDecoderLayer,Embedding,lm_head": 8}
        out = []
        for wrap, parameters in sizes.items():
            out.append(case({"wrap": wrap}, 1, [step()], units=[unit("root", parameters=parameters), unit("b")],
                            peak_bytes=20 if wrap == "block" else peak))
            out[-1].settings["set"] = "layers=2,dim=8,vocab=100"
        return out

    def test_sizes_to_the_parameter_show(self):
        self.shows(claims.embedding_in_root(self.rows()))

    def test_a_head_outside_of_the_root_fails(self):
        self.fails(claims.embedding_in_root(self.rows(default=808)))

    def test_no_memory_saved_fails(self):
        self.fails(claims.embedding_in_root(self.rows(peak=20)))


class Predicted(Rows):
    def rows(self, finest, best=10, coarse_fits=False):
        large = [oom({"wrap": "root", "batch": 16}), case({"wrap": "block", "batch": 16}, 50, peak_bytes=1, units=[unit()] * 33)]
        if coarse_fits:
            large[0] = case({"wrap": "root", "batch": 16}, 50, peak_bytes=1, units=[unit()])
        return large + [case({"wrap": "blocks:4", "batch": 1}, best, [step(compute=best)]), case({"wrap": "block", "batch": 1}, 10, [step(compute=10)]),
                        case({"wrap": "class:Linear,LlamaRMSNorm", "batch": 1}, finest, [step(compute=10, **{BWD: finest - 10})])]

    def test_twice_shows(self):
        self.shows(claims.predicted_7b(self.rows(20)))

    def test_less_is_the_other_finding_with_its_reason(self):
        found = claims.predicted_7b(self.rows(15))
        self.assertEqual(found.verdict, claims.DIFFERS)
        self.assertIn("below 2x", found.text)

    def test_no_cliff_fails(self):
        self.fails(claims.predicted_7b(self.rows(11)))

    def test_a_small_cliff_differs_only_where_the_network_is_hidden(self):
        rows = self.rows(11)
        rows[-1] = case(rows[-1].axes, 11, [step(compute=8, overlapped=2, **{BWD: 1})])
        found = claims.predicted_7b(rows)
        self.assertEqual(found.verdict, claims.DIFFERS)
        self.assertIn("67% of the time on the network lies under computation", found.text)

    def test_no_boundary_fails(self):
        self.fails(claims.predicted_7b(self.rows(20, coarse_fits=True)))


if __name__ == "__main__":
    unittest.main()
