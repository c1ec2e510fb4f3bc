"""``levelbench analyze batch-size``: makes runs at several batch sizes, or reads those that are there."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import StoreError, UsageError

if TYPE_CHECKING:
    from levelbench.analysis.batch_size import BatchSizeStudy, NoiseScale, TunedRate
    from levelbench.experiments.request import Arm
    from levelbench.experiments.training import RunPlan
    from levelbench.records import Record, RunGroup, Store

__all__ = ["batch_size"]

_CANNOT_TELL = 4
_STEP = 2.0
"""The factor between learning rates that are tried."""
_MAKING = ("rule", "tune", "runs", "seed", "noise", "framework", "every", "epochs", "budget", "data", "fresh")
"""Options that only runs to be made have, all absent by default."""


@click.command("batch-size", cls=shared.Grouped, short_help="Convergence, throughput and time at each batch size.")
@click.argument("words", nargs=-1, metavar="[TASK|RUNS]...")
@shared.several("--sizes", help="Batch sizes to run TASK at, separated by commas; without it, RUNS are read.")
@click.option(
    "--rule",
    type=click.Choice(["linear", "sqrt", "none"]),
    help="How the learning rate follows the batch size, from the recipe's own.  [default: linear]",
)
@click.option("--tune", type=click.IntRange(min=2), help="Tune it instead: so many trials a size, around the rule's.")
@click.option("-n", "--runs", type=click.IntRange(min=1), help="Number of runs of each size.  [default: 5]")
@click.option("--seed", type=click.IntRange(min=0), help="The first seed.  [default: 0]")
@click.option("--noise", type=click.IntRange(min=0), help="Runs that measure the gradient noise scale.  [default: 3]")
@click.option("--batch-setting", default="batch", show_default=True, help="The setting that is the batch size.")
@click.option("--lr-setting", default="lr", show_default=True, help="The setting that is the learning rate.")
@click.option("--framework", help="Framework.")
@click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda, cuda:1, ...")
@click.option("--every", help='Interval between evaluations: "1 epoch", "100 steps".')
@click.option("--epochs", type=float, help="Give up after this many epochs.")
@click.option("--budget", type=float, help="Give up after this many seconds.")
@shared.data_option
@click.option("--fresh", is_flag=True, default=None, help="Run everything again, even if the store has it.")
@shared.spawn_option
@shared.view_options
@click.option("--plot", type=click.Path(path_type=Path), help="Draw all three figures to this .svg or .png file.")
@shared.table_options
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level.")
@shared.store_option
@shared.answer_options
def batch_size(words: tuple[str, ...], store_path: Path, as_json: bool, **given: Any) -> int:
    """Convergence, throughput and time at each batch size; the largest that converges; the critical batch size.

    With --sizes, TASK is run at each of them, interleaved; what is in the store is not repeated. Without, RUNS are
    selected as everywhere.

    \b
      levelbench analyze batch-size digits --sizes 32,64,128,256,512
      levelbench analyze batch-size digits --sizes 64,256,1024 --tune 5
      levelbench analyze batch-size 'digits[recipe=mlp]' --crossing interpolated

    Exits with 4 if runs of fewer than two sizes reached the target.
    """
    shared.check_statistics(0.0, given["level"])
    shared.check_plot(given["plot"])
    shared.check_writable(given["plot"], given["csv_path"], given["markdown_path"])
    if given["sizes"] is None:
        if extra := [name for name in _MAKING if given[name] is not None]:
            asked = f"--{extra[0]} without --sizes"
            raise UsageError(asked, "no runs are to be made", "give --sizes 32,64,128, or leave it out")
        found, groups, caveats = _read(words, store_path, given)
    else:
        found, groups, caveats = _make(words, store_path, as_json, given)
    return _conclude(found, groups, caveats, as_json, given)


def _read(
    words: tuple[str, ...], store_path: Path, given: dict[str, Any]
) -> tuple[BatchSizeStudy, list[RunGroup], list[str]]:
    from levelbench.analysis.batch_size import seen_samples, study_batch_size
    from levelbench.cli.reporting import require_sound
    from levelbench.records import read_record
    from levelbench.records.summary import in_order

    store = shared.open_store(store_path)
    view = {name: given[name] for name in ("clock", "crossing", "threshold")}
    groups = in_order(shared.selected_groups(store, words, **view))
    caveats = require_sound(groups, "an analysis of batch sizes", store_path)
    missed = [read_record(Path(run.path)) for group in groups for run in group.runs if not run.reached]
    found = study_batch_size(
        groups,
        seen_samples(missed),
        batch=given["batch_setting"],
        rate=given["lr_setting"],
        searches=[each for word in words or (None,) for each in store.searches(word)],
        level=given["level"],
    )
    return found, groups, caveats


def _make(
    words: tuple[str, ...], store_path: Path, as_json: bool, given: dict[str, Any]
) -> tuple[BatchSizeStudy, list[RunGroup], list[str]]:
    from levelbench.analysis.batch_size import scaled_rate, seen_samples, study_batch_size
    from levelbench.cli.reporting import groups_of_plan
    from levelbench.experiments.request import Options, resolve
    from levelbench.records.selection import parse_item

    sizes = _sizes(given["sizes"])
    if len(words) != 1:
        found = f"{len(words)} are named" if words else "none is named"
        raise UsageError("a study of batch sizes", found, "name one: levelbench analyze batch-size digits --sizes ...")
    reference, settings = parse_item(words[0])
    shared.refuse_overruled([(reference, settings)], given)
    options = Options(
        framework=given["framework"],
        device=given["device"],
        target=given["threshold"],
        crossing=given["crossing"],
        clock=given["clock"],
        evaluate_every=given["every"],
        budget_epochs=given["epochs"],
        budget_s=given["budget"],
        data=given["data"],
    )
    own = resolve(reference, dict(settings), options)
    base, rate = _base(own, given)
    rule, count, first = given["rule"] or "linear", given["runs"] or 5, given["seed"] or 0
    names = given["batch_setting"], given["lr_setting"]

    def arm(size: int, at: float | None) -> Arm:
        changed = {names[0]: size} if at is None else {names[0]: size, names[1]: at}
        return resolve(reference, {**settings, **changed}, options)

    rates = {size: None if rate is None else scaled_rate(rule, rate, size, base) for size in sizes}
    said = _said(rule, rate, base)
    store = shared.open_store(store_path)
    tuned: list[TunedRate] = []
    if given["tune"] is not None:
        tuned = _tune(store, arm, rates, first + count, as_json, given)
        rates |= {each.size: each.rate for each in tuned}
        said = f"tuned at each size: {given['tune']} trials a size, of one run each, around {said}"
        if edges := [str(each.size) for each in tuned if each.edge]:
            said += f"; at {', '.join(edges)} the best rate is the last one that was tried (more: --tune)"
    arms = [arm(size, rates[size]) for size in sizes]
    plan, records = _runs(store, arms, count, first, as_json, given, f"{len(sizes)} batch sizes, learning rate {said}")
    if tuned:
        # The answer itself says which runs were trials.
        store.left_out.clear()
    groups = groups_of_plan(plan, records, count)
    study = study_batch_size(
        groups,
        seen_samples(list(records.values())),
        batch=names[0],
        rate=names[1],
        rule=said,
        tuned=tuned,
        noise=_noise(store, own, base, as_json, given),
        level=given["level"],
    )
    return study, groups, []


def _sizes(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if wrong := [word for word in words if not word.isdecimal() or int(word) < 1]:
        raise UsageError(f"--sizes {text}", f"{wrong[0]!r} is not a batch size", "write --sizes 32,64,128")
    if len({int(word) for word in words}) < 2:
        raise UsageError(f"--sizes {text}", "it takes two sizes or more", "write --sizes 32,64,128")
    return sorted({int(word) for word in words})


def _base(own: Arm, given: dict[str, Any]) -> tuple[int, float | None]:
    """The recipe's own batch size and learning rate, where it has that setting."""
    settings, what = own.specification.settings, f"{own.specification.task}[recipe={own.specification.recipe}]"
    base, rate = settings.get(given["batch_setting"]), settings.get(given["lr_setting"])
    if isinstance(base, bool) or not isinstance(base, int):
        found = f"it has no setting {given['batch_setting']!r} that is a whole number: {', '.join(settings)}"
        raise UsageError(f"batch sizes of {what}", found, "name the one that is the batch size: --batch-setting")
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0:
        if given["rule"] != "none" or given["tune"] is not None:
            found = f"it has no setting {given['lr_setting']!r} above zero: {', '.join(settings)}"
            raise UsageError(
                f"a learning rate for each batch size of {what}", found, "name it: --lr-setting, or --rule none"
            )
        return base, None
    return base, float(rate)


def _said(rule: str, rate: float | None, base: int) -> str:
    if rate is None:
        return "not a setting of the recipe"
    return f"{rate:g} at every size" if rule == "none" else f"{rule} in the batch size, {rate:g} at {base}"


def _runs(
    store: Store, arms: list[Arm], count: int, first: int, as_json: bool, given: dict[str, Any], line: str,
    observe: tuple[str, ...] = (), searching: bool = False,
) -> tuple[RunPlan, dict[tuple[int, int], Record]]:  # fmt: skip
    from levelbench.cli.watching import measure_runs
    from levelbench.experiments.training import Extras, Training

    return measure_runs(
        Training(store, given["data"], Extras(observe=observe, fork=not given["spawn"]), searching=searching),
        arms,
        count,
        folder=store.path,
        first_lines=lambda plan: [line],
        first_seed=first,
        fresh=bool(given["fresh"]),
        as_json=as_json,
    )


def _tune(
    store: Store, arm: Any, rates: dict[int, float | None], seed: int, as_json: bool, given: dict[str, Any]
) -> list[TunedRate]:
    """The best of several rates at each size, on a seed that no measured run has."""
    from levelbench.analysis.batch_size import LearningRateTrial, choose_rate
    from levelbench.experiments.training import Training
    from levelbench.records import summarise

    count = given["tune"]
    places = [
        (size, float(f"{rate * _STEP ** (at - (count - 1) // 2):.4g}"))
        for size, rate in rates.items()
        if rate is not None
        for at in range(count)
    ]
    arms: list[Arm] = [arm(size, rate) for size, rate in places]
    line = f"tuning: {count} trials at each of {len(rates)} batch sizes, a factor of {_STEP:g} apart, seed {seed}"
    try:
        plan, records = _runs(store, arms, 1, seed, as_json, given, line, searching=True)
    except BaseException:
        # What it has made are trials, too.
        found = Training(store, searching=True)
        made = [next((each for each in found.find(arm) if each.header.seed == seed), None) for arm in arms]
        _keep(store, [(*place, arms[at], made[at]) for at, place in enumerate(places)], seed, given)
        raise
    trials: dict[int, list[LearningRateTrial]] = {}
    for (at, _), record in records.items():
        run, (size, rate) = summarise(record, clock=plan.arms[at].specification.clock), places[at]
        samples = float(run.samples_to_target) if run.samples_to_target else math.inf
        quality = run.quality.get(run.target.split, math.nan)
        trials.setdefault(size, []).append(LearningRateTrial(size, rate, samples, quality))
    higher = plan.arms[0].specification.target.direction != "lower"
    tuned = [choose_rate(each, higher) for _, each in sorted(trials.items())]
    tried = [(*place, arms[at], records.get((at, seed))) for at, place in enumerate(places)]
    _keep(store, tried, seed, given, {each.size: each.rate for each in tuned})
    return tuned


def _keep(
    store: Store, tried: list[tuple[int, float, Arm, Record | None]], seed: int, given: dict[str, Any],
    best: Mapping[int, float] | None = None,
) -> None:  # fmt: skip
    """Write down a search for each size, so that its trials count as no runs; ``best`` are the rates that won."""
    from levelbench.cli.tune_verb import write_search
    from levelbench.experiments.search import Dimension
    from levelbench.records import format_item, summarise
    from levelbench.records.searches import Search, SearchedSide

    for size in dict.fromkeys(size for size, *_ in tried):
        own = {rate: (arm, record) for at, rate, arm, record in tried if at == size}
        trials = [summarise(record) for _, record in own.values() if record is not None]
        arm = next(iter(own.values()))[0]
        side = SearchedSide(
            format_item(arm.specification.task, {given["batch_setting"]: size}),
            [str(Dimension(given["lr_setting"], "choice", tuple(own)))],
            [run.id for run in trials],
            math.fsum(run.wall_s for run in trials),
            own[best[size]][0].key if best else "",
        )
        fresh = list(range(given["seed"] or 0, seed))
        write_search(Search(arm.specification.task, "grid", seed, len(own), None, fresh, [side]), [arm.key], store)


def _noise(store: Store, own: Arm, base: int, as_json: bool, given: dict[str, Any]) -> NoiseScale | None:
    """The noise scale of runs of the recipe as it is, in a folder of their own: they are slower, and never compared."""
    from levelbench.analysis.batch_size import NoiseScale, noise_scale
    from levelbench.training.observers import run_name

    count = 3 if given["noise"] is None else given["noise"]
    if not count:
        return None
    if own.specification.distribution is not None:
        why = "no gradient noise scale: it is measured in one process, and these have ranks; leave them out"
        return NoiseScale(None, base, (), why)
    # A folder that begins with a dot is no part of the store around it.
    apart = shared.open_store(store.path / ".noise")
    folder = apart.path.absolute() / "gradients"
    words = (f"noise={folder}",)
    line = f"gradient noise scale: runs of their own at batch size {base}"
    _, records = _runs(apart, [own], count, given["seed"] or 0, as_json, given, line, words)
    runs = []
    for record in records.values():
        header = record.header
        path = folder / f"{run_name(header.specification, f's{header.seed}-{header.id}')}-noise.csv"
        try:
            with path.open(encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
        except OSError as error:
            do = f"remove {apart.path}, or take --noise 0"
            raise StoreError(f"read {path}", error.strerror or str(error), do) from None
        names = ("samples", "covariance_trace", "gradient_square")
        runs.append([(float(row[names[0]]), float(row[names[1]]), float(row[names[2]])) for row in rows])
    return noise_scale(runs, base, given["level"])


def _conclude(
    found: BatchSizeStudy, groups: list[RunGroup], caveats: list[str], as_json: bool, given: dict[str, Any]
) -> int:
    """Print, then write, so that a figure that cannot be drawn loses nothing."""
    from levelbench.cli.reporting import doubt_lines
    from levelbench.report.batch_sizes import batch_size_tables, write_batch_size

    tables = batch_size_tables(found)
    lines = [*found.lacks, *found.caveats, *dict.fromkeys([*caveats, *doubt_lines(groups)])]

    def write() -> dict[str, str]:
        written = shared.write_tables(given, tables, [*found.answers(), *lines], title=found.title)
        return written if given["plot"] is None else {**written, "plot": str(write_batch_size(found, given["plot"]))}

    shared.present(tables, lines, lambda: _as_json(found, lines), write, answer=found.answers(), as_json=as_json)
    return 0 if sum(point.group.reached > 0 for point in found.points) > 1 else _CANNOT_TELL


def _as_json(found: BatchSizeStudy, lines: list[str]) -> dict[str, Any]:
    from levelbench.cli.reporting import group_json

    points = [
        {each.name: getattr(point, each.name) for each in fields(point)} | {"group": group_json(point.group)}
        for point in found.points
    ]
    return {
        "title": found.title,
        "level": found.level,
        "answers": found.answers(),
        "lines": lines,
        "points": points,
        "largest": found.largest.size if found.largest else None,
        "fastest": found.fastest.size if found.fastest else None,
        "critical": asdict(found.critical) if found.critical else None,
        "noise": asdict(found.noise) if found.noise else None,
        "rule": found.rule,
        "tuned": [asdict(each) for each in found.tuned],
    }
