"""Rows of a results.db, as the checks of the experiments see them. Standard library only.

Times under load: a rank that loses its core makes every other rank wait, so a disturbed step is longer in every class. The checks look
at the least disturbed step instead (`least`): a wire that is emulated holds its lane for at least its time in every step, and what a
schedule cannot hide it cannot hide in the best of steps either.
"""
import dataclasses
import pathlib
import sqlite3

EXPOSED = ("exposed_all_gather_forward", "exposed_all_gather_backward", "exposed_reduce_scatter", "exposed_other")
CLASSES = ("compute", "overlapped") + EXPOSED + ("copy", "host", "memory_wait", "optimizer", "idle")


@dataclasses.dataclass
class Unit:
    name: str
    parameters: int
    unsharded_bytes: int
    reduce_bytes: int
    strategy: str = "full_shard"


@dataclasses.dataclass
class Case:
    """One case. `steps`: the partition of every traced step of every rank, class -> ns, without the suffix."""
    axes: dict
    status: str = "ok"
    reason: str = ""
    peak_bytes: int = 0
    peak_cause: str = ""
    samples: list = dataclasses.field(default_factory=list)
    steps: list = dataclasses.field(default_factory=list)
    units: list = dataclasses.field(default_factory=list)
    settings: dict = dataclasses.field(default_factory=dict)
    predicted: bool = False

    @property
    def fits(self):
        return self.status in ("ok", "near_oom")

    @property
    def step_ns(self):
        """The fastest repetition, per step."""
        return min(self.samples)

    def least(self, *classes):
        """The sum of these classes in the step, of all ranks and traced steps, where it is least."""
        return min(sum(step[c] for c in classes) for step in self.steps)

    def calmest(self):
        """The shortest traced step: class -> ns."""
        return min(self.steps, key=lambda step: sum(step.values()))

    def name(self):
        return ", ".join(f"{k} {v}" for k, v in self.axes.items())


def read(directory):
    """The cases of a results directory, in the order in which they were stored."""
    path = pathlib.Path(directory, "results.db").resolve()
    with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as db:
        db.row_factory = sqlite3.Row
        return [_case(db, row) for row in db.execute("SELECT * FROM cases ORDER BY case_index")]


def _case(db, row):
    def rows(table):
        return db.execute(f"SELECT * FROM {table} WHERE case_index = ? ORDER BY position", (row["case_index"],)).fetchall()

    steps = [{c: r[c + "_ns"] for c in CLASSES} for r in rows("steps")]
    if not steps and row["compute_ns"] is not None:
        steps = [{c: row[c + "_ns"] for c in CLASSES}]
    return Case(axes={r["name"]: r["value"] for r in rows("axes")}, status=row["status"], reason=row["reason"], peak_bytes=row["peak_bytes"] or 0,
                peak_cause=row["peak_cause"], samples=[r["ns"] for r in rows("samples")], steps=steps,
                units=[Unit(r["name"], r["parameters"], r["unsharded_bytes"], r["reduce_bytes"], r["strategy"]) for r in rows("unit_table")],
                settings={r["name"]: r["value"] for r in rows("settings")}, predicted=bool(row["predicted"]))


def machine(directory):
    """The machine and revision of a sweep, in a line."""
    path = pathlib.Path(directory, "results.db").resolve()
    with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as db:
        known = dict(db.execute("SELECT name, value FROM sweep_environment"))
    return ", ".join(f"{k} {known[k]}" for k in ("cpu", "cores", "git_revision") if known.get(k))
