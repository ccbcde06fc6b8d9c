"""The experiments: name (of the spec beside this file), claim, check."""
import dataclasses
import typing

import claims


@dataclasses.dataclass(frozen=True)
class Experiment:
    name: str
    claim: str
    check: typing.Callable


EXPERIMENTS = [
    Experiment("01_too_fine", "Too fine a wrapping costs up to 2 to 3 times the step", claims.too_fine),
    Experiment("02_too_coarse", "Too coarse a wrapping runs out of memory", claims.too_coarse),
    Experiment("03_per_block", "Uniform units a block overlap almost fully; only the first gathers and the last reductions are exposed",
               claims.per_block),
    Experiment("04_forward_prefetch", "Forward prefetch hides unit k+1 under unit k, and cannot without a next unit", claims.forward_prefetch),
    Experiment("05_backward_prefetch", "Backward prefetch: none is slowest, then post, then pre", claims.backward_prefetch),
    Experiment("06_size_based", "Units by size help encoder-decoder models and models with a big embedding and a small head", claims.size_based),
    Experiment("07_mixed_plan", "A plan that mixes strategies and precisions beats either alone where the table is sparse", claims.mixed_plan),
    Experiment("08_embedding_in_root", "Embedding and head belong to the root unless told otherwise", claims.embedding_in_root),
    *(Experiment(f"virtual_7b_{gpu}_{ranks}", f"Llama-2-7B on {ranks} x {full}, predicted: the cliff at fine units, the memory boundary at coarse ones",
                 claims.predicted_7b) for gpu, full in (("a100", "A100 80 GB"), ("h100", "H100 SXM")) for ranks in (8, 64)),
]
