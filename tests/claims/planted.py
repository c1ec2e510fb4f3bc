"""One fault for each rule, planted in the clean claim; and in clean record files, where a record can have it.

The one idea: what is planted is a single mistake of an author; whatever else fires at it is listed with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.claims.clean import QUALITIES
from tests.claims.run_store import QUALITIES as QUALITIES_OF_RUNS
from tests.claims.run_store import SEEDS, environment, specification, team, write_run, write_runs

from levelbench.claims.view import HardwareView, Operations, Summarised, Uncounted
from levelbench.records import Target

__all__ = ["ALSO", "ALSO_IN_RECORDS", "IN_CLAIM", "IN_RECORDS", "NOT_IN_RECORDS"]

K80 = HardwareView(
    description="1 x NVIDIA Tesla K80",
    nodes=1,
    accelerators=1,
    accelerator="NVIDIA Tesla K80",
    release_year=2014,
    peak_flops={"float32": 8.74e12},
    bandwidth=480e9,
    power_w=300.0,
    price_per_hour=0.90,
    price_source="AWS on-demand, us-east-1, 2026-11-01",
)
QUALITIES_SHORT = (0.52, 0.70, 0.80, 0.84, 0.85, 0.86, 0.86)
LOST = [*QUALITIES[:-1], 0.9312]
OTHER_OPTIONS = {"batch": 500, "learning_rate": 0.4, "precision": "float32"}
RATIOS = Summarised("speed-up over all tasks", "ratios", "arithmetic", n=3, value=1.31, deterministic=True)

IN_CLAIM: dict[str, tuple[str, dict[str, Any]]] = {
    "LB101": ("the largest point did not reach its target", {"scaling[2].reached": False}),
    "LB102": (
        "the quality is that of the training data",
        {"sides[0].quality.split": "train", "sides[1].quality.split": "train"},
    ),
    "LB103": (
        "three runs of the same specification are left out",
        {"uncounted[0]": Uncounted("3 done", 3, hours=0.03, same_specification=True)},
    ),
    "LB104": (
        "the baseline ran on a card of 2014",
        {"sides[1].hardware": K80, "sides[1].operations": Operations(to_target=1.4e16)},
    ),
    "LB105": (
        "a kernel's ratio is claimed for the whole",
        {"comparisons[0].of": "kernel", "comparisons[0].part_share": 0.1},
    ),
    "LB106": ("input is not on the clock", {"sides[0].clock.data": False, "sides[1].clock.data": False}),
    "LB107": ("mixed precision, of which no shares are given", {"sides[0].operations.mixed": True}),
    "LB108": ("the quality is of other options than the speed", {"sides[0].accuracy.options": OTHER_OPTIONS}),
    "LB109": (
        "images of 224 x 224 where 32 x 32 is usual, for no better result",
        {
            "sides[0].workload.input_size": 224 * 224 * 3,
            "standards[0].time_s": None,
            "standards[0].cost_usd": None,
            "standards[0].quality": 0.95,
        },
    ),
    "LB110": ("convergence is drawn by time alone", {"figures[0].x": "time"}),
    "LB111": ("the batch grows with the ranks of a strong scaling", {"scaling[2].global_batch": 2000}),
    "LB112": ("the new side has the easier target", {"sides[0].quality.target": 0.93}),
    "LB121": ("the largest point is extrapolated", {"scaling[2].extrapolated": True}),
    "LB122": ("the settings were chosen on the test data", {"sides[0].quality.tuning_split": "test"}),
    "LB123": ("the figure is the best of five runs", {"sides[0].reported": "best"}),
    "LB126": ("the data was made up", {"sides[0].data.synthetic": True}),
    "LB130": ("a run loses its target again", {"sides[0].runs[0].curve.quality": LOST}),
    "LB132": ("the baseline was not tuned", {"sides[1].tuned": False}),
    "LB201": ("the ratio has no absolute base", {"comparisons[0].base_time_s": None, "sides[1].time_s": None}),
    "LB202": ("the mean rate is an arithmetic one", {"summaries[1].by": "arithmetic"}),
    "LB203": ("ratios are averaged", {"summaries[2]": RATIOS}),
    "LB204": ("the mean time has no interval", {"sides[0].interval": None}),
    "LB205": ("nobody checked that a t interval is allowed", {"summaries[0].normality_checked": False}),
    "LB206": ("a p value, and an effect that is negligible", {"comparisons[0].effect": 0.05}),
    "LB207": ("the values behind a mean are not to be had", {"summaries[0].raw_available": False}),
    "LB208": (
        "the time of a step was read without waiting for the device",
        {"sides[0].timing.synchronised": False, "sides[0].time_of": "step", "sides[1].time_of": "step"},
    ),
    "LB209": ("a speed-up is drawn without its limit", {"figures[2].bound_shown": False}),
    "LB210": ("ranks that were not measured are joined by a line", {"figures[2].joined": True}),
    "LB301": (
        "a BLEU whose signature does not say how it was tokenised",
        {
            "sides[0].quality.metric": "BLEU",
            "sides[1].quality.metric": "BLEU",
            "sides[0].quality.signature": "nrefs:1|case:mixed",
            "sides[1].quality.signature": "nrefs:1|case:mixed|tok:13a",
        },
    ),
    "LB302": ("the baseline is not a verified reference", {"sides[1].reference": False}),
    "LB303": (
        "the product of two speed-ups is claimed, and together they give less",
        {"compositions[0].claimed": 1.38, "compositions[0].measured": 1.16},
    ),
}
"""By rule: the fault in words, and what it changes in the clean claim."""

ALSO: dict[tuple[str, str], str] = {}
"""(what was planted, what else fires): the reason why it must."""


def _not_reached(store: Path) -> str:
    write_runs(store)
    write_runs(store, start=20, spec=specification(distribution=team(4)), qualities=QUALITIES_SHORT, epoch_s=0.6)
    return "digits"


def _on_training_data(store: Path) -> str:
    target = Target("top1", 0.9, split="train")
    write_runs(store, spec=specification(target=target), split="train")
    return "digits"


def _left_out(store: Path) -> str:
    write_runs(store)
    for at, seed in enumerate((7, 8)):
        write_run(store / "more", seed, minute=20 + at)
    return f"{(store / 'digits').resolve()}/"


def _old_card(store: Path) -> str:
    for at, name in enumerate(("Tesla K80", "Tesla V100-SXM2-16GB")):
        spec = specification(device="cuda", framework=("torch", "jax")[at])
        env = environment(accelerators={"nvidia_driver": "550", "names": [name]})
        write_runs(store, start=20 * at, spec=spec, env=env, epoch_s=6.0 - 4.0 * at)
    return "digits"


def _ends_at_the_first(store: Path) -> str:
    write_runs(store, spec=specification(crossing="first"), qualities=QUALITIES_OF_RUNS[:6])
    return "digits"


def _other_data(store: Path) -> str:
    write_runs(store)
    write_runs(store, start=20, spec=specification(framework="torch"), data="digits without the hard ones")
    return "digits"


def _looks(store: Path) -> str:
    write_runs(store, looks=True)
    return "digits"


def _made_up(store: Path) -> str:
    write_runs(store, synthetic=True)
    return "digits"


def _lost_again(store: Path) -> str:
    qualities = (*QUALITIES_OF_RUNS[:7], 0.91, 0.88)
    write_runs(store, spec=specification(crossing="first"), qualities=qualities)
    return "digits"


def _one_run(store: Path) -> str:
    write_runs(store, seeds=SEEDS[:1])
    return "digits"


def _skewed(store: Path) -> str:
    for at, framework in enumerate(("numpy", "torch")):
        for seed in range(10):
            spec = specification(framework=framework)
            write_run(store, seed, spec=spec, minute=2 * seed + at, epoch_s=20.0 if seed == 9 else 2.0 + at)
    return "digits"


def _negligible(store: Path) -> str:
    write_runs(store, noise=0.0001)
    write_runs(store, start=20, spec=specification(framework="torch"), epoch_s=2.01, noise=0.0001)
    return "digits"


def _base_never_arrives(store: Path) -> str:
    write_runs(store, qualities=QUALITIES_SHORT)
    write_runs(store, start=20, spec=specification(framework="torch"))
    return "digits"


IN_RECORDS: dict[str, tuple[str, Callable[[Path], str]]] = {
    "LB101": ("the runs of 4 ranks never reach the target", _not_reached),
    "LB102": ("the target is looked for on the training data", _on_training_data),
    "LB103": ("two more runs of the specification lie in the store", _left_out),
    "LB104": ("the base ran on a K80, the other side on a V100", _old_card),
    "LB110": ("every run ends with its first evaluation at the target", _ends_at_the_first),
    "LB112": ("the two groups trained on other data", _other_data),
    "LB122": ("the test data is evaluated after every epoch", _looks),
    "LB126": ("the data is marked synthetic", _made_up),
    "LB130": ("the target counts from the first touch, and is lost again", _lost_again),
    "LB204": ("there is one run", _one_run),
    "LB205": ("one run of ten takes ten times as long, and a t test is used", _skewed),
    "LB206": ("half a per cent between two groups that hardly vary", _negligible),
    "LB302": ("no run of the base reaches the target", _base_never_arrives),
}
"""By rule: the fault in words, and what writes a store with it and says what to select there."""

ALSO_IN_RECORDS: dict[tuple[str, str], str] = {}

NOT_IN_RECORDS: dict[str, str] = {
    "LB105": "a record times whole runs and no kernel",
    "LB106": "every clock of ours has the input on it; under one that leaves preparation out it is not stated",
    "LB107": "a record holds no rate of operations",
    "LB108": "speed and quality of a record are of one run",
    "LB109": "a record holds no size of a sample, and in a comparison to the target a large batch has to pay off",
    "LB111": "a record says whether its scaling is weak, and its time is to the target",
    "LB121": "a run of a record was run",
    "LB123": "all runs that are selected are shown; those that are not are LB103's",
    "LB132": "a record knows of no tuning, year or source of its recipe",
    "LB201": "ratios come with their base",
    "LB202": "no rates are summarised",
    "LB203": "no ratios are summarised",
    "LB207": "every run is there",
    "LB208": "the clock of a record is known, and it waits for its device",
    "LB209": "a record draws nothing",
    "LB210": "a record draws nothing",
    "LB301": "a record has no place for a signature: it is not stated",
    "LB303": "single speed-ups are not multiplied",
}
"""By rule: why no record can have its fault."""
