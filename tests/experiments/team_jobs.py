"""Jobs of several ranks for tests, and a task whose first rank is killed."""

import msgspec

from levelbench.experiments.jobs import Job, Message
from levelbench.experiments.request import Options, TeamOptions, resolve
from levelbench.experiments.training import launch
from levelbench.records import Store, new_id, read_record
from levelbench.records.schema import Distribution, Specification, Target


def job(store, **changed):
    specification = changed.pop("specification", None) or Specification(
        task="digits",
        recipe="mlp",
        framework="numpy",
        device="cpu",
        settings={},
        target=Target("top1", 0.9),
        crossing="confirmed",
        clock="data,forward,backward,update",
        evaluate_every="1 epoch",
        budget_epochs=1.0,
        distribution=Distribution(3, "all-reduce", {}, "process", "gloo"),
    )
    return Job("digits", specification, key="k", seed=0, id="id", store=str(store), **changed)


def said(rank, found, lost=False):
    return Message(error=(f"what rank {rank} did", found, "see"), exit_code=3, rank=rank, lost=lost)


DYING = '''
"""A task whose first rank is killed as it evaluates, as often as a file beside it counts down."""
import os
from pathlib import Path

from levelbench.networks import zoo
from levelbench.training import Momentum, Recipe, Shuffled, Task, Top1, datasets


class Dying(Top1):
    def measure(self, executor, held):
        left = Path(__file__).with_suffix(".left")
        if left.exists():
            left.write_text(str(int(left.read_text()) - 1))
            if left.read_text() == "0":
                left.unlink()
                os.kill(os.getpid(), 9)
        return super().measure(executor, held)


task = Task("dying", data=datasets.digits, quality=Dying(target=0.999))


@task.recipe
def small(hidden: int = 16) -> Recipe:
    """Small."""
    return Recipe(zoo.mlp(64, hidden, 10), Shuffled(64), Momentum(0.05), epochs=3)
'''


def launched(path, store, engine):
    """A run that writes checkpoints: its record and its error."""
    arm = resolve(str(path), {}, Options(framework="numpy", team=TeamOptions(ranks=2, engine=engine)))
    found = launch(
        Job(
            str(path), arm.specification, key=arm.key, seed=0, id=new_id(), store=str(store.path),
            checkpoint="10 steps", source=arm.source.digest
        )
    )  # fmt: skip
    return read_record(found.path), found.error


def alike(record, expected):
    assert [(each.step, each.loss, each.quality) for each in record.evaluations] == [
        (each.step, each.loss, each.quality) for each in expected.evaluations
    ]
    assert record.end.quality == expected.end.quality
    for rank, observed in expected.ranks.items():
        assert len(record.ranks[rank]["step_time"].values) == len(observed["step_time"].values)
        assert list(record.ranks[rank]["sent"].values) == list(observed["sent"].values)


def of_engine(engine):
    return msgspec.structs.replace(
        job("store").specification, distribution=Distribution(2, "all-reduce", {}, engine, "gloo")
    )


def left_of(store):
    """The statuses of the records in a store, and its other files."""
    records = Store(store.path).records()
    others = [path for path in store.path.rglob("*") if path.is_file() and path.suffix != ".jsonl"]
    return records, [path.name for path in others if not path.name.startswith(".")], list(store.path.glob(".jobs/*"))
