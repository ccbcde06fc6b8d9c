"""`prefetch_order` as users give it: a file beside the case. A good one hits, a wrong one is freed, counted and told, an unknown
unit is refused with the nearest name; losses do not depend on any of it."""
import pathlib
import tempfile

from command import Checks, call, flags, run_json

SETTINGS = dict(model="llama", set="layers=4,dim=32,heads=2,kv_heads=2,ffn=48,vocab=64", seq=8, world=2, steps=2, warmup=1,
                backward_prefetch="none")
GOOD = ["root"] + [f"model.layers.{i}" for i in range(4)]


def main():
    check = Checks()
    with tempfile.TemporaryDirectory() as folder:
        def order(names):
            path = pathlib.Path(folder, "order.txt")
            path.write_text("# as forward runs them\n" + "\n".join(names) + "\n", encoding="utf-8")
            return {**SETTINGS, "prefetch_order": str(path)}

        recorded, good = run_json(SETTINGS), run_json(order(GOOD))
        wrong = run_json(order(["root"] + GOOD[:0:-1]))
        check(good["prefetch"] == recorded["prefetch"] == dict(hits=4, misses=0, unused=0, order_changes=0), f"good: {good['prefetch']}")
        # Behind the root layer 3 is gathered, behind layers 1 to 3 the one before, which has run.
        check(wrong["prefetch"] == dict(hits=0, misses=4, unused=4, order_changes=0), f"wrong: {wrong['prefetch']}")
        check(any("freed unused" in w for w in wrong["warnings"]), f"told: {wrong['warnings']}")
        check(not any("freed unused" in w for w in good["warnings"]), "a good order has nothing to tell")
        check(recorded["losses"] == good["losses"] == wrong["losses"], "losses")
        check(good["case"] != recorded["case"] and good["case"] != wrong["case"], "the file's content is part of the case")

        for command in ("plan", "run"):
            refused = call(command, *flags(order(["root", "model.layer.1"])))
            check(refused.returncode == 2, f"{command}: exit {refused.returncode}")
            check("order.txt:3] no unit is named 'model.layer.1' (nearest: model.layers.1" in refused.stderr, f"{command}: {refused.stderr}")
        missing = call("run", *flags({**SETTINGS, "prefetch_order": folder + "/nowhere.txt"}))
        check(missing.returncode == 2 and "[prefetch_order] " in missing.stderr and "does not exist" in missing.stderr, f"{missing.returncode}: {missing.stderr}")
    check.done()


if __name__ == "__main__":
    main()
