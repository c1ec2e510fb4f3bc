"""``levelbench analyze generalization``: kept models on data that nobody tuned them on."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.analysis.generalization import Generalization
    from levelbench.experiments.generalization import TaskModels

__all__ = ["generalization_verb"]

_CANNOT_TELL = 4
_APART = 0.005
"""A model that scores this differently from its run was not evaluated as it was trained."""


@click.command("generalization", short_help="Trained models on data that nobody tuned them on.")
@click.argument("runs", nargs=-1, metavar="[RUNS]...")
@click.option("--on", "words", multiple=True, help="Data: corruptions, one of them, a dataset or task, X.npy,y.npy.")
@click.option("--transfer", "others", multiple=True, help="Task to fit a last layer to, with the others frozen.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the corruptions.")
@click.option("--task", "reference", help="File of the runs' task, if it is not installed.")
@click.option("--framework", help="Framework to score with; default: that of the first runs.")
@click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda, cuda:1, ...")
@shared.data_option
@click.option("--margin", type=float, default=0.5, show_default=True, help="SAME means within this many points.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the qualities to this .svg or .png file.")
@shared.table_options
@shared.store_option
@shared.answer_options
def generalization_verb(runs: tuple[str, ...], store_path: Path, as_json: bool, **given: Any) -> int:
    """Score the models of RUNS on other data, and compare them with those of the first runs named.

    RUNS were made with levelbench run --keep-model. Name first the runs of a recipe that was not optimised for time:

    \b
      levelbench analyze generalization 'digits[recipe=mlp]' 'digits[recipe=onecycle]' --on corruptions
      levelbench analyze generalization digits --on 'noise[severity=3]' --on fresh-x.npy,fresh-y.npy
      levelbench analyze generalization fashion-mnist --transfer digits

    Corruptions are noise, shot, impulse, blur, contrast, brightness, shift and rotation of the test split, of
    severities 1 to 5. Exits with 1 if a model is worse anywhere, with 4 if nothing could be told.
    """
    from levelbench.analysis.generalization import QualityKind
    from levelbench.cli.reporting import require_sound
    from levelbench.experiments.generalization import models_of
    from levelbench.records import group_runs
    from levelbench.report.generalization import (
        MOST_ARMS,
        generalization_lines,
        generalization_tables,
        scores_table,
        write_generalization,
    )

    if not given["words"] and not given["others"]:
        do = "--on corruptions, --on DATASET, --on X.npy,y.npy or --transfer TASK"
        raise UsageError("models on other data", "no data is named", f"name some: {do}")
    if not 0 < given["margin"] < 100:
        raise UsageError(f"--margin {given['margin']:g}", "it is no number of points", "give one such as 0.5")
    shared.check_statistics(0.0, given["level"])
    shared.check_plot(given["plot"])
    shared.check_writable(given["csv_path"], given["markdown_path"])
    store = shared.open_store(store_path)
    found_runs = shared.readable_runs(store, runs)
    # In the order of the words, because the first is the baseline.
    groups = group_runs([run for word in runs for run in shared.select_runs(store, (word,))] or found_runs)
    groups = store.with_unselected(groups) if runs else groups
    caveats = require_sound(groups, "the models", store_path)
    if given["plot"] is not None and len(groups) > MOST_ARMS:
        raise UsageError(f"--plot {given['plot']}", f"{len(groups)} groups are too many for a figure", "name fewer")
    models = models_of(groups, store.path, given["reference"], given["data"])
    found, remarks = _scored(models, given)
    tables, lines = generalization_tables(found), [*generalization_lines(found), *models.caveats, *remarks, *caveats]

    def write() -> dict[str, str]:
        csv = {each.name: each for each in [scores_table(found), *tables]}
        written = shared.write_tables(given, tables, lines, title="Generalization", csv=csv)
        drawn = None if given["plot"] is None else write_generalization(found, given["plot"])
        return written if drawn is None else {**written, "plot": str(drawn)}

    shared.present(tables, lines, lambda: {**asdict(found), "lines": lines}, write, as_json=as_json, apart=False)
    kinds = [each.against.kind for each in found.scores if each.against is not None]
    if QualityKind.WORSE in kinds:
        return 1
    return 0 if any(kind not in (None, QualityKind.UNCLEAR) for kind in kinds) else _CANNOT_TELL


def _scored(models: TaskModels, given: dict[str, Any]) -> tuple[Generalization, list[str]]:
    """Every model on every set, set after set; and remarks on models that do not score what their run recorded."""
    from levelbench.analysis.generalization import ScoredArm, ScoredSet, generalization
    from levelbench.cli.progress_line import ProgressLine
    from levelbench.experiments.generalization import evaluation_sets, open_models, transfer_task

    # What cannot be transferred to is refused before anything is scored.
    transfers = [transfer_task(models, word, given["data"]) for word in dict.fromkeys(given["others"])]
    framework = given["framework"] or models.groups[0].specification.framework
    backend, opened = open_models(models, framework, given["device"])
    sets, scores, doubts = [], [], list[str]()
    with ProgressLine() as line:
        for each in evaluation_sets(models, given["words"], given["seed"], given["data"]):
            line.say(f"scoring {sum(map(len, opened))} models on {each.name}")
            sets.append(ScoredSet(each.name, each.kind, each.what, len(each.split), each.corruption))
            scores.append([[each.score(models.task, backend, executor) for _, executor in arm] for arm in opened])
            doubts += each.doubts
        for other in transfers:
            line.say(f"fitting {sum(map(len, opened))} last layers: {other.name}")
            sets.append(ScoredSet(other.name, "transfer", other.what, len(other.splits[2][1])))
            scores.append([[other.score(backend, network) for network, _ in arm] for arm in opened])
    arms = []
    for at, (group, kept) in enumerate(zip(models.groups, models.models, strict=True)):
        seeds = tuple(each.facts.seed for each in kept)
        arms.append(ScoredArm(group.label, seeds, tuple(tuple(row[at]) for row in scores)))
    quality = models.task.quality
    options = {name: given[name] for name in ("margin", "level")}
    found = generalization(quality.metric, sets, arms, direction=quality.direction, **options)
    return found, [*doubts, *_remarks(models, scores[0])]


def _remarks(models: TaskModels, tested: list[list[float]]) -> list[str]:
    """The models whose quality on the test split is not the one that their run recorded."""
    found = []
    for group, kept, now in zip(models.groups, models.models, tested, strict=True):
        then = [each.facts.quality.get("test", score) for each, score in zip(kept, now, strict=True)]
        apart = max(abs(a - b) for a, b in zip(then, now, strict=True))
        if apart > _APART:
            found.append(
                f"doubt: {group.label} scored up to {100 * apart:.2g} points differently in its runs, which may have "
                "computed in another precision"
            )
    return found
