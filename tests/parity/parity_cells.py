"""The cells of the parity matrix: their axes, which of them there are, and what both sides build from a cell."""

STEPS, SEED, BATCH = 5, 7, 2
SIZES = {"plain": dict(layers=2, dim=32, heads=4, kv_heads=4, ffn=88, vocab=96, classes=10, seq=16),
         "uneven": dict(layers=2, dim=20, heads=2, kv_heads=2, ffn=27, vocab=53, classes=7, seq=11)}
LEARNING_RATE, WEIGHT_DECAY, EPSILON = 1e-3, 0.1, 1e-4
AXES = {
    "world": [2, 3, 4],
    "layout": ["flat", "per_parameter"],
    "strategy": ["full_shard", "shard_grad_op", "no_shard", "hybrid_shard:2", "hybrid_shard_zero2:2", "reshard:2"],
    "precision": ["fp32", "bf16/fp32", "bf16/bf16", "bf16/fp32/fp32"],  # parameters/reduction/outputs
    "accumulate": ["1", "3/last", "3/every"],
    "checkpoint": ["none", "block"],
}
SHAPES = {
    "llama": ["plain", "tied", "uneven", "clipped", "frozen"], "qwen2": ["plain"], "qwen3": ["plain"],
    "gpt-neox": ["plain", "tied", "uneven", "frozen"], "gpt2": ["plain", "tied", "uneven", "frozen"],
    "t5": ["plain", "tied", "uneven", "frozen"], "embedding-classifier": ["plain", "uneven", "frozen"],
    "mlp": ["plain", "uneven", "frozen"], "chain": ["twice", "unused"],
}
# A whole unit, and a part of another one.
FROZEN = {
    "llama": ["model.layers.0.*", "model.layers.1.mlp.up_proj.weight"],
    "gpt-neox": ["gpt_neox.layers.0.*", "gpt_neox.layers.1.mlp.dense_h_to_4h.*"],
    "gpt2": ["transformer.h.0.*", "transformer.h.1.mlp.c_fc.*"], "t5": ["encoder.block.1.*", "decoder.block.0.layer.1.*"],
    "embedding-classifier": ["embedding.weight", "h.1.*", "score.bias"], "mlp": ["layers.1.*", "head.bias"],
}
ORDER = {"twice": [0, 0, 1], "unused": [0, 2]}  # of the chain's units
# Without --all: these, as (changes to the cell that PyTorch users start from).
BASE = dict(model="llama", shape="plain", world=2, layout="per_parameter", strategy="full_shard", precision="fp32",
            accumulate="1", checkpoint="none")
SUBSET = [{}, {"layout": "flat"}, {"strategy": "shard_grad_op", "accumulate": "3/last"},
          {"layout": "flat", "strategy": "shard_grad_op", "accumulate": "3/every", "shape": "tied"},
          {"layout": "flat", "strategy": "no_shard", "accumulate": "3/last", "shape": "clipped"},
          {"precision": "bf16/fp32", "checkpoint": "block"}, {"precision": "bf16/bf16", "accumulate": "3/every"},
          {"precision": "bf16/fp32/fp32", "shape": "frozen"},
          {"layout": "flat", "precision": "bf16/fp32"}, {"shape": "tied", "checkpoint": "block"},
          {"shape": "clipped", "accumulate": "3/every"}, {"layout": "flat", "checkpoint": "block", "shape": "uneven"},
          {"model": "qwen2", "layout": "flat"}, {"model": "qwen3"},
          {"model": "gpt-neox", "shape": "frozen", "layout": "flat", "checkpoint": "block"}, {"model": "gpt-neox", "shape": "uneven"},
          {"model": "gpt2", "layout": "flat", "shape": "tied"}, {"model": "gpt2", "precision": "bf16/fp32", "accumulate": "3/last"},
          {"model": "t5", "shape": "tied"}, {"model": "t5", "shape": "uneven", "layout": "flat", "checkpoint": "block"},
          {"model": "embedding-classifier", "shape": "frozen"}, {"model": "mlp", "shape": "uneven", "layout": "flat"},
          {"model": "chain", "shape": "twice"}, {"model": "chain", "shape": "twice", "layout": "flat"},
          {"model": "chain", "shape": "unused"}, {"model": "chain", "shape": "unused", "layout": "flat", "checkpoint": "block"},
          {"world": 3, "shape": "uneven"}, {"world": 3, "layout": "flat", "shape": "uneven", "accumulate": "3/last"},
          {"world": 4, "strategy": "hybrid_shard:2"}, {"world": 4, "strategy": "hybrid_shard_zero2:2", "shape": "clipped"},
          {"world": 4, "strategy": "reshard:2", "precision": "bf16/fp32"}]


def name_of(cell):
    return " ".join(f"{k}={v}" for k, v in cell.items())


def cells_of_all():
    """llama: every combination on 2 ranks, or 4 where groups need them. The others, and llama on 3 and 4 ranks: half of precision x
    accumulation x checkpointing, which has every pair of these; others than llama on 3 ranks for uneven sizes alone."""
    cells = [dict(model=m, shape=s) for m, shapes in SHAPES.items() for s in shapes]
    for key, values in AXES.items():
        cells = [{**c, key: v} for c in cells for v in values]

    def chosen(c):
        usual = 4 if ":" in c["strategy"] else 2
        if c["model"] == "llama" and c["world"] == usual:
            return True
        places = sum(AXES[k].index(c[k]) for k in ("precision", "accumulate", "checkpoint"))
        return places % 2 == 0 and (c["model"] == "llama" or c["world"] == usual or (c["world"], c["shape"]) == (3, "uneven"))

    return [c for c in cells if chosen(c) and (c["world"] == 4 or ":" not in c["strategy"])]


def reason_to_skip(cell):
    """Why PyTorch has no counterpart, or None."""
    flat, grouped = cell["layout"] == "flat", ":" in cell["strategy"]
    if flat and cell["precision"].count("/") == 2:
        return "flat meets FSDP1, which has no output type"
    if flat and cell["strategy"] == "reshard:2":
        return "flat meets FSDP1, which has no reshard group"
    if flat and grouped:
        return "FSDP1's hybrid strategies do not run on Gloo on the CPU"
    if not flat and cell["strategy"] == "no_shard":
        return "FSDP2 has no direct form of no_shard"
    if (cell["strategy"], cell["accumulate"], cell["shape"]) == ("no_shard", "3/last", "tied") and cell["precision"] != "fp32":
        return "FSDP1 fails: it gives a bf16 gradient to an fp32 parameter"
    if not flat and (cell["shape"], cell["accumulate"]) == ("unused", "3/last") and cell["precision"].startswith("bf16/fp32"):
        return "FSDP2 fails: it looks for gradients to keep in a unit that was never gathered"
    return None


def settings_of(cell):
    """What both sides build from."""
    family, shape = cell["model"], cell["shape"]
    s = dict(SIZES["uneven" if shape == "uneven" else "plain"], family=family)
    if family in ("llama", "qwen2", "qwen3") and shape != "uneven":
        s["kv_heads"] = 2
    s.update(gated=shape != "plain", parallel_residual=shape != "uneven", relative_buckets=8, relative_span=12,
             tied=shape == "tied", clip=0.2 if shape == "clipped" else None, frozen=FROZEN[family] if shape == "frozen" else [],
             steps=STEPS, seed=SEED, batch=BATCH, epsilon=EPSILON)
    if family == "chain":
        s.update(layers=max(ORDER[shape]) + 1, order=ORDER[shape])
    count, _, sync = cell["accumulate"].partition("/")
    param, reduce, output = (cell["precision"].split("/") + ["", ""])[:3]
    s.update(accumulate=int(count), every=sync == "every", param=param, reduce=reduce or param, output=output or "auto")
    return s


KEYS = {"llama": "layers dim heads kv_heads head_dim ffn vocab tied norm_eps rope_theta",
        "gpt-neox": "layers dim heads kv_heads ffn vocab tied norm_eps rope_theta rotary_pct parallel_residual",
        "gpt2": "layers dim heads kv_heads ffn vocab tied norm_eps positions", "mlp": "layers dim ffn classes",
        "t5": "layers dim heads kv_heads head_dim ffn vocab tied norm_eps gated relative_buckets relative_span",
        "embedding-classifier": "layers dim heads kv_heads ffn vocab classes norm_eps"}


def case_of(cell):
    """Settings of shardscope."""
    s = settings_of(cell)
    family = {"chain": "mlp"}.get(s["family"], s["family"])
    values = dict(s, positions=s["seq"], head_dim=s["dim"] // s["heads"], norm_eps=1e-5, rope_theta=10000, rotary_pct=0.25)
    keys = KEYS["llama" if family in ("qwen2", "qwen3") else family].split()
    dims = [f"{k}={str(values[k]).lower()}" for k in keys] + (["frozen=" + "+".join(s["frozen"])] if s["frozen"] else [])
    case = dict(model=family, set=",".join(dims), seq=s["seq"], batch=BATCH, world=cell["world"], seed=SEED, steps=STEPS, warmup=0,
                layout=cell["layout"], param_dtype=s["param"], reduce_dtype=s["reduce"], output_dtype=s["output"],
                accumulate=s["accumulate"], accumulate_sync="every" if s["every"] else "last", checkpoint=cell["checkpoint"],
                clip=s["clip"] or "none")
    case.update({"reshard_after_forward": "2"} if cell["strategy"] == "reshard:2" else {"strategy": cell["strategy"]})
    return {k: str(v) for k, v in case.items()}


def case_of_line(cell, **settings):
    """What a driver is asked (cases.h)."""
    return dict(settings={**case_of(cell), **settings}, chain=settings_of(cell).get("order", []))
