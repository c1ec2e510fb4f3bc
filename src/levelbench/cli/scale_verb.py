"""``levelbench scale TASK --ranks 1,2,4``: how time to accuracy scales with the number of ranks."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.cli.options import listed_schemes, team, team_options
from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.analysis.scaling import Scaling
    from levelbench.distributed.simulation.predict import Prediction
    from levelbench.experiments.prediction import ToPredict
    from levelbench.experiments.request import Arm
    from levelbench.experiments.training import RunPlan
    from levelbench.records import Record

__all__ = ["command"]


@click.command("scale", cls=shared.Grouped)
@click.argument("task", metavar="TASK")
@shared.several("--ranks", default="1,2", show_default=True, help="Numbers of ranks, separated by commas.")
@team_options
@click.option(
    "-n", "--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Number of runs of each point."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The first seed.")
@click.option("--recipe", help="Recipe.")
@click.option("--framework", help="Framework.")
@click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda (one per rank), ...")
@click.option("--target", type=float, help="Target to use instead of the task's, on the metric's scale.")
@click.option("--crossing", help="When a target counts as reached: confirmed, final, first, sustained.")
@click.option("--clock", help="Clock policy of the score: wall, dawnbench, mlperf, algoperf.")
@click.option("--every", help='Interval between evaluations: "1 epoch", "100 steps".')
@click.option("--epochs", type=float, help="Give up after this many epochs.")
@click.option("--budget", type=float, help="Give up after this many seconds.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="LEVELBENCH_DATA",
    help="Folder of the dataset; default: $LEVELBENCH_DATA.",
)
@click.option("--simulate", help="Also predict these numbers of ranks: 8,64,512,4096.")
@click.option(
    "--network",
    help='Network of the predictions: "alpha=2us,beta=25GB/s,topology=flat|ring|tree|fat-tree|torus|hosts"; or '
    '"measured" for links like those between the ranks here.',
)
@click.option("--fresh", is_flag=True, help="Run everything again, even if the store has it.")
@shared.spawn_option
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the efficiencies to this .svg or .png file.")
@shared.table_options
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level.")
@shared.store_option
@shared.json_option
@shared.debug_option
def command(task: str, store_path: Path, as_json: bool, debug: bool, **given: Any) -> int:
    """Train TASK on each number of ranks, and say what more ranks gain, in time per epoch and in time to accuracy.

    \b
      levelbench scale fashion-mnist --ranks 1,2,4 --scheme all-reduce
      levelbench scale digits --ranks 1,2 --scheme 'all-reduce,top-k[ratio=0.01]' --engine mpi --scaling weak
      levelbench scale fashion-mnist --ranks 1 --simulate 8,64 --network "alpha=2us,beta=25GB/s,topology=fat-tree"
    """
    from levelbench.report.drawing import check_ending

    shared.check_statistics(0.02, given["level"])
    if given["plot"] is not None:
        check_ending(given["plot"])
    shared.check_writable(given["plot"], given["csv_path"], given["markdown_path"])
    with same_threads(given):
        return _scale(task, store_path, as_json, given)


def _scale(task: str, store_path: Path, as_json: bool, given: dict[str, Any]) -> int:
    from levelbench.cli.watching import measure_runs
    from levelbench.experiments.training import Extras, Training

    shared.refuse_in_ranks("levelbench scale", given["engine"])
    arms = _arms(task, given)
    wanted = wanted_of(given, arms[0])
    store = shared.open_store(store_path)

    plan, records = measure_runs(
        Training(store, given["data"], Extras(timeout_s=given["timeout"], fork=not given["spawn"])),
        arms,
        given["runs"],
        folder=store.path,
        first_lines=_crowded,
        first_seed=given["seed"],
        fresh=given["fresh"],
        as_json=as_json,
    )
    return _conclude(plan, records, wanted, as_json, given)


def _arms(text: str, given: dict[str, Any]) -> list[Arm]:
    """One arm for each scheme and number of ranks; a single process has no scheme."""
    from levelbench.experiments.request import Options, resolve
    from levelbench.records.selection import parse_item

    reference, settings = parse_item(text)
    if "ranks" in settings:
        do = f"leave it out, or write --ranks 1,{settings['ranks']}"
        raise UsageError(f"levelbench scale {text}", "its ranks are those of --ranks, which differ by point", do)
    shared.refuse_overruled([(reference, settings)], given)
    arms: dict[str, Arm] = {}
    for ranks in numbers_of(given["ranks"]):
        for scheme in listed_schemes(given["scheme"]):
            options = Options(
                recipe=given["recipe"],
                framework=given["framework"],
                device=given["device"],
                target=given["target"],
                crossing=given["crossing"],
                clock=given["clock"],
                evaluate_every=given["every"],
                budget_epochs=given["epochs"],
                budget_s=given["budget"],
                data=given["data"],
                team=team({**given, "scheme": scheme}, ranks),
            )
            arm = resolve(reference, dict(settings), options)
            arms[arm.key] = arm
    return list(arms.values())


def _crowded(plan: RunPlan) -> list[str]:
    from levelbench.measure.meters.resources import available_cores

    cores = available_cores()
    distributions = [arm.specification.distribution for arm in plan.arms]
    many = sorted({each.ranks for each in distributions if each and each.ranks > cores})
    if not many:
        return []
    return [f"warning: {', '.join(map(str, many))} ranks on {cores} cores: no efficiency will be claimed for them"]


def _conclude(
    plan: RunPlan,
    records: dict[tuple[int, int], Record],
    wanted: ToPredict | None,
    as_json: bool,
    given: dict[str, Any],
) -> int:
    """Analyze, print, write, in this order, so that a figure that cannot be drawn loses nothing."""
    from levelbench.analysis.scaling import scaling
    from levelbench.cli.reporting import groups_of_plan, scaling_json

    groups = groups_of_plan(plan, records, given["runs"])
    specification = plan.arms[0].specification
    title = f"Scaling of {specification.task}[recipe={specification.recipe}] on {specification.framework}{_team(plan)}"
    found = scaling(title, groups, list(records.values()), given["level"])
    if as_json:
        predicted = _predict(plan, records, wanted, given)
        told = {"predictions": [dataclasses.asdict(each) for each in predicted]}
        shared.emit_json({**scaling_json(found), **told, **_write(found, predicted, given)})
    else:
        with shared.as_far_as_read():
            _print(found)
        predicted = _predict(plan, records, wanted, given)
        with shared.as_far_as_read():
            _print_predictions(predicted)
        for name, path in _write(found, predicted, given).items():
            click.echo(f"{name}: {path}")
    return 0 if all(group.reached for group in groups) else 1


def _predict(
    plan: RunPlan, records: dict[tuple[int, int], Record], wanted: ToPredict | None, given: dict[str, Any]
) -> list[Prediction]:
    if wanted is None:
        return []
    from levelbench.experiments.prediction import predictions, with_measured_links

    if measures_links(given):
        team = next(each for arm in plan.arms if (each := arm.specification.distribution) is not None)
        wanted = with_measured_links(wanted, plan.arms[0], team, list(records.values()), given["timeout"])
    return predictions(plan.arms[0], list(records.values()), wanted)


def _team(plan: RunPlan) -> str:
    """What all points of several ranks have in common, in words."""
    teams = [each for arm in plan.arms if (each := arm.specification.distribution) is not None]
    if not teams:
        return ""
    schemes = ", ".join(dict.fromkeys(each.scheme for each in teams))
    lr = "" if teams[0].lr_scale == "none" else f", learning rate {teams[0].lr_scale}"
    return f": {schemes}, {teams[0].scaling} scaling{lr}, {teams[0].engine} over {teams[0].communicator}"


_ASSUMED = (
    "Calibrated on the steps of one process here, and on those of workers with a core each where there are some; "
    "without these, computation is taken to be in proportion to the examples of a rank.",
    "Time: collectives by the fastest algorithm at each size; packing and compression as measured here (none for a "
    "scheme that needs real partners). Bytes and "
    "messages: the scheme's closed form, of a ring for all-reduce. Intervals: draws of what was measured. What is left "
    "out is in docs/explanation/simulation.md.",
)


def _print_predictions(predicted: list[Prediction]) -> None:
    from levelbench.report.distributed import predictions_table

    if predicted:
        click.echo()
        shared.print_tables(predictions_table(predicted, _ASSUMED))


def _print(found: Scaling) -> None:
    from levelbench.cli.reporting import scaling_lines
    from levelbench.report.distributed import scaling_tables

    click.echo()
    shared.say(*found.answers)
    click.echo()
    shared.print_tables(*scaling_tables(found))
    click.echo()
    shared.say(*scaling_lines(found))


def _write(found: Scaling, predicted: list[Prediction], given: dict[str, Any]) -> dict[str, str]:
    """Write the requested files; returns the paths by name."""
    from levelbench.cli.reporting import scaling_lines
    from levelbench.report.distributed import predictions_table, scaling_tables, write_scaling

    tables = [*scaling_tables(found), *([predictions_table(predicted, _ASSUMED)] if predicted else [])]
    written = shared.write_tables(given, tables, scaling_lines(found), title=found.title)
    if given["plot"] is not None:
        written["plot"] = str(write_scaling(found.title, found.points, predicted, given["plot"], found.laws))
    return written


def numbers_of(text: str) -> list[int]:
    """Numbers of ranks, smallest first."""
    numbers = []
    for word in text.split(","):
        if not word.strip().isdecimal() or int(word) < 1:
            raise UsageError(f"--ranks {text}", f"{word.strip()!r} is not a number of ranks", "write --ranks 1,2,4")
        numbers.append(int(word))
    return sorted(set(numbers))


@contextmanager
def same_threads(given: dict[str, Any]) -> Iterator[None]:
    """Give each rank the same number of threads, so that more ranks are more cores; the user's own settings stay."""
    from levelbench.distributed.launching.environment import THREADS
    from levelbench.measure.meters.resources import available_cores

    numbers = numbers_of(given["ranks"])
    if numbers[0] == 1 and "nodes=" in (given["engine"] or ""):
        raise UsageError(
            f"--ranks {given['ranks']} on several machines",
            "the command is started on each of them, so each would train the single process of the first point",
            "leave 1 out",
        )
    chosen = os.environ.get(THREADS[0], str(max(1, available_cores() // numbers[-1])))
    unset = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(unset, chosen))
    try:
        yield
    finally:
        for name in unset:
            os.environ.pop(name, None)


_MEASURED = "measured"


def measures_links(given: dict[str, Any]) -> bool:
    """Whether the links of predictions are to be measured."""
    return (given["network"] or "").split(",")[0].strip() == _MEASURED


def wanted_of(given: dict[str, Any], arm: Arm) -> ToPredict | None:
    """What to predict, read before anything is measured."""
    if given["simulate"] is None:
        if given["network"] is not None:
            raise UsageError("--network", "it is for predictions, but none are requested", "add --simulate 8,64")
        return None
    if given["network"] is None:
        do = "give it: --network alpha=2us,beta=25GB/s; or --network measured"
        raise UsageError(f"--simulate {given['simulate']}", "the network to predict for is not given", do)
    from levelbench.distributed.simulation.networks import parse
    from levelbench.experiments.prediction import ToPredict, check_simulable
    from levelbench.records.selection import parse_item

    if 1 not in numbers_of(given["ranks"]):
        found = "it is calibrated on runs of one process, but that point is missing"
        raise UsageError(f"--simulate {given['simulate']}", found, f"add it: --ranks 1,{given['ranks']}")
    network = given["network"]
    if measures_links(given):
        if numbers_of(given["ranks"])[-1] < 2:
            found = "links are measured between ranks, and there is one rank"
            raise UsageError(f"--network {network}", found, f"add --ranks {given['ranks']},2, or give alpha and beta")
        # Replaced by what is measured.
        network = network.replace(_MEASURED, "alpha=1us,beta=1GB/s", 1)
    schemes = [parse_item(each or "all-reduce") for each in listed_schemes(given["scheme"])]
    wanted = ToPredict(schemes, numbers_of(given["simulate"]), parse(network), given["scaling"] or "strong")
    check_simulable(arm, wanted)
    return wanted
