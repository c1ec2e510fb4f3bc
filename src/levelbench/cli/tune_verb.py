"""``levelbench tune``: search settings under a stated budget, and measure the winners on fresh seeds."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import LevelbenchError, UsageError

if TYPE_CHECKING:
    from levelbench.analysis.tuning import TuningStudy, TuningTrial
    from levelbench.experiments.request import Arm, Options
    from levelbench.experiments.search import Proposer, Space
    from levelbench.experiments.training import RunPlan, Training
    from levelbench.records import Store
    from levelbench.records.searches import Search
    from levelbench.training.task import Setting

__all__ = ["command", "write_search"]

_CANNOT_TELL = 4
_FAILURES = 3
"""Failed trials in a row, from the first on, after which the cause is taken to be something else than the settings."""


@click.command("tune", cls=shared.Grouped)
@click.argument("task", metavar="TASK")
@click.option("--space", multiple=True, help="NAME=log(1e-4,1), NAME=uniform(0,0.99) or NAME=choice(32,64,128).")
@click.option("--against", multiple=True, help="Another task with settings, tuned with the same budget and compared.")
@click.option("--space-against", multiple=True, help="Space of --against.  [default: that of TASK]")
@click.option("--trials", type=int, default=20, show_default=True, help="Trials of each side.")
@click.option("--budget", help="Time for the trials of each side, such as 10min; no trial begins after it.")
@click.option("--sampler", default="random", show_default=True, help="Who proposes settings: random, or tpe (Optuna).")
@click.option(
    "-n", "--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of each winner on fresh seeds."
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all trials; fresh ones follow."
)
@click.option("--framework", help="Framework.")
@click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda, cuda:1, ...")
@click.option("--target", type=float, help="Target to use instead of the task's, on the metric's scale.")
@click.option("--clock", help="Clock policy of the score: wall, dawnbench, mlperf, algoperf.")
@click.option("--every", help='Interval between evaluations: "1 epoch", "100 steps".')
@click.option("--epochs", type=float, help="Give up a run after this many epochs.")
@click.option("--give-up", help="Give up a run after this time: 90, 2min.")
@shared.data_option
@shared.spawn_option
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the trials to this .svg or .png file.")
@shared.table_options
@shared.statistics_options
@shared.store_option
@shared.answer_options
def command(task: str, store_path: Path, as_json: bool, **given: Any) -> int:
    """Search the settings of TASK for the shortest time to its target, under a stated budget.

    With --against both sides have the same number of trials and the same time, take turns, and are compared by runs of
    their winners on seeds that no trial used:

    \b
      levelbench tune digits --space 'lr=log(1e-3,1)' --space 'momentum=uniform(0,0.99)' --trials 20
      levelbench tune 'my_task.py[recipe=adam]' --space 'lr=log(1e-4,0.1)' \\
          --against 'my_task.py[recipe=momentum]' --space-against 'lr=log(1e-3,1)' --budget 10min

    Every trial is a record, and the same command resumes. levelbench lint finds the budget and the trials in the store.
    Exits with 4 if the comparison is inconclusive, or no run of the winner reached the target.
    """
    from levelbench.experiments.training import Extras, Training

    if given["trials"] < 2:
        raise UsageError(f"--trials {given['trials']}", "a search takes at least two", "give a number of 2 or more")
    shared.check_statistics(given["margin"], given["level"])
    shared.check_plot(given["plot"])
    shared.check_writable(given["csv_path"], given["markdown_path"])
    budget_s = None if given["budget"] is None else shared.seconds("--budget", given["budget"])
    sides = _sides(task, given)
    store = shared.open_store(store_path)
    extras = Extras(fork=not given["spawn"])
    search = Training(store, given["data"], extras, searching=True)
    found = _searched(search, sides, store, budget_s, given, as_json=as_json)
    study = _measured(found, Training(store, given["data"], extras), sides, store, given, as_json)
    # The answer itself says which runs are compared.
    store.left_out.clear()
    return _conclude(study, as_json, given)


@dataclass
class _Side:
    """One side while it is searched: what it may set, who proposes, and its trials so far."""

    reference: str
    settings: dict[str, Setting]
    options: Options
    space: Space
    proposer: Proposer
    base: Arm
    label: str
    trials: list[TuningTrial]
    ids: list[str]
    interrupted: list[str]
    winner: str = ""

    @property
    def spent_s(self) -> float:
        return sum(each.spent_s for each in self.trials)

    def arm(self, settings: dict[str, Setting]) -> Arm:
        from levelbench.experiments.request import resolve

        return resolve(self.reference, {**self.settings, **settings}, self.options)


def _sides(task: str, given: dict[str, Any]) -> list[_Side]:
    """Both sides, or the only one, with everything checked before a run."""
    from levelbench.experiments.request import Options
    from levelbench.records.selection import parse_item

    if len(given["against"]) > 1:
        named = " and ".join(given["against"])
        raise UsageError("--against", f"it names {named}", "name one: two sides are compared at a time")
    if given["space_against"] and not given["against"]:
        raise UsageError("--space-against", "there is no other side", "name it: --against OTHER")
    words = [(task, given["space"])]
    if given["against"]:
        words.append((given["against"][0], given["space_against"] or given["space"]))
    parsed = [parse_item(word) for word, _ in words]
    shared.refuse_overruled(parsed, given)
    options = Options(
        framework=given["framework"],
        device=given["device"],
        target=given["target"],
        clock=given["clock"],
        evaluate_every=given["every"],
        budget_epochs=given["epochs"],
        budget_s=None if given["give_up"] is None else shared.seconds("--give-up", given["give_up"]),
        data=given["data"],
    )
    pairs = zip(parsed, words, strict=True)
    sides = [_side(reference, dict(own), space, options, given) for (reference, own), (_, space) in pairs]
    _check_pair(sides)
    return sides


def _side(
    reference: str, settings: dict[str, Setting], words: tuple[str, ...], options: Options, given: dict[str, Any]
) -> _Side:
    from levelbench.experiments.request import resolve
    from levelbench.experiments.search import check_space, proposer, read_space, space_size

    base = resolve(reference, settings, options)
    specification = base.specification
    what = f"{specification.task}[recipe={specification.recipe}]"
    space = read_space(words, specification.settings, settings, what)
    if space_size(space) < given["trials"]:
        found = f"the space of {what} has {space_size(space):g} settings"
        do = f"give --trials {space_size(space):g} or fewer, or a wider space"
        raise UsageError(f"{given['trials']} trials", found, do)
    check_space(space, reference, settings, options)
    found_by = proposer(given["sampler"], space, given["seed"])
    return _Side(reference, settings, options, space, found_by, base, what, [], [], [])


def _check_pair(sides: list[_Side]) -> None:
    """Refuse two sides that are one search, or that could not be compared; label them by what their searches fix."""
    from levelbench.experiments.training import labels
    from levelbench.records.selection import format_item, parse_item

    for side, label in zip(sides, labels([side.base for side in sides]), strict=True):
        name, shown = parse_item(label)
        searched = {each.name for each in side.space}
        side.label = format_item(name, {key: value for key, value in shown.items() if key not in searched})
    if len(sides) < 2:
        return
    a, b = (side.base.specification for side in sides)
    if (a.task, a.target, a.crossing) != (b.task, b.target, b.crossing):
        found = f"they aim at {a.task} ({a.target.threshold:g}, {a.crossing}) and {b.task} ({b.target.threshold:g}, "
        do = "name two recipes or settings of one task, with one target"
        raise UsageError("two sides of tuning", f"{found}{b.crossing})", do)
    if sides[0].base.key == sides[1].base.key and sides[0].space == sides[1].space:
        do = "let them differ in a recipe, a framework, a fixed setting or their spaces"
        raise UsageError("two sides of tuning", "both are the same settings with the same space", do)
    if sides[0].label == sides[1].label:
        sides[0].label, sides[1].label = f"{sides[0].label} (first)", f"{sides[1].label} (second)"


def _searched(
    kind: Training, sides: list[_Side], store: Store, budget_s: float | None, given: dict[str, Any], *, as_json: bool
) -> TuningStudy:
    """All trials of both sides in turns; what is in the store already is not repeated."""
    from levelbench.analysis.remaining import RemainingTime
    from levelbench.analysis.tuning import TunedSide, TuningStudy
    from levelbench.cli.watching import LiveWatcher, Trial
    from levelbench.experiments.search import make_trial
    from levelbench.measure.clocks import HOST
    from levelbench.measure.environment import capture

    environment = capture()
    fresh = tuple(range(given["seed"] + 1, given["seed"] + 1 + given["runs"]))
    study = TuningStudy(
        sides[0].base.specification.task, given["sampler"], given["seed"], fresh, given["trials"], budget_s, ()
    )
    with shared.as_far_as_read(err=as_json):
        limit = "" if given["budget"] is None else f" or {given['budget']}"
        click.echo(
            f"up to {given['trials']} trials{limit} for {' and '.join(side.label for side in sides)}; then "
            f"{given['runs']} runs of each winner on fresh seeds\nrecords: {store.path}",
            err=as_json,
        )
    remaining, began_ns = RemainingTime([]), HOST.now_ns()
    with kind.staying([side.base for side in sides]):
        for number in range(1, given["trials"] + 1):
            turn = [side for side in sides if budget_s is None or side.spent_s < budget_s]
            if not turn:
                break
            proposed = [side.proposer.propose() for side in turn]
            arms = [side.arm(settings) for side, settings in zip(turn, proposed, strict=True)]
            if budget_s is not None:
                remaining.budgets_s = {at: budget_s - side.spent_s for at, side in enumerate(sides)}
            numbers = {arm.key: sides.index(side) for side, arm in zip(turn, arms, strict=True)}
            later = [sides.index(side) for side in turn] * (given["trials"] - number)
            trial = Trial(number, given["trials"], began_ns, remaining, list(numbers.values()), later)

            def watch(plan: RunPlan, trial: Trial = trial) -> closing[LiveWatcher]:
                return closing(LiveWatcher(plan, on_stderr=as_json, trial=trial))

            records = make_trial(kind, arms, given["seed"], environment, watch)
            for side, settings, arm, record in zip(turn, proposed, arms, records, strict=True):
                _note(side, number, settings, arm, record)
                before = [each.header for each in kind.find(arm) if each.status == "interrupted"]
                side.interrupted += [each.id for each in before if each.seed == given["seed"]]
            _keep(study, sides, store)
            for side in turn:
                _require_working(side)
    ended = [
        TunedSide(
            side.label,
            tuple(map(str, side.space)),
            tuple(side.trials),
            "trials" if len(side.trials) == given["trials"] else "budget",
        )
        for side in sides
    ]
    return dataclasses.replace(study, sides=tuple(ended))


def _note(side: _Side, number: int, settings: dict[str, Setting], arm: Arm, record: Any) -> None:
    """Count the trial, and let the proposer learn from it."""
    from levelbench.analysis.tuning import trial_of
    from levelbench.records import summarise

    trial = trial_of(number, settings, summarise(record, clock=arm.specification.clock))
    side.trials.append(trial)
    side.ids.append(record.header.id)
    side.proposer.learn(trial.score)


def _require_working(side: _Side) -> None:
    """Raise the error of trials that have all failed: settings do not seem to be its cause."""
    if len(side.trials) == _FAILURES and all(each.failed for each in side.trials):
        raise LevelbenchError(
            f"tuning {side.label}",
            f"its first {_FAILURES} trials failed; the last one left {side.trials[-1].path}",
            "levelbench show with that path says why; correct the task, or the space",
        )


def _keep(study: TuningStudy, sides: list[_Side], store: Store) -> None:
    """Write down what the search has done so far, so that a claim can state it."""
    from levelbench.records.searches import Search, SearchedSide

    found = Search(
        study.task,
        study.sampler,
        study.seed,
        study.planned,
        study.budget_s,
        list(study.fresh_seeds),
        [
            SearchedSide(each.label, list(map(str, each.space)), each.ids, each.spent_s, each.winner, each.interrupted)
            for each in sides
        ],
    )
    write_search(found, [each.base.key for each in sides], store)


def write_search(found: Search, keys: Sequence[str], store: Store) -> None:
    """Write ``found`` to the store; ``keys``, those of what its sides vary, and the spaces name it."""
    from levelbench.records.searches import find_searches, trial_ids
    from levelbench.report.drawing import write_whole

    over = any(each.winner for each in found.sides)
    if not over and trial_ids([found]) <= trial_ids(list(find_searches(store.path))):
        # It goes over trials of an earlier command, whose file knows more.
        return
    spaces = (f"{key} {' '.join(side.space)}" for key, side in zip(keys, found.sides, strict=True))
    name = hashlib.sha256("\n".join([found.sampler, str(found.seed), *spaces]).encode()).hexdigest()[:8]
    write_whole(found.path_in(store.path, name), found.as_text())


def _measured(
    study: TuningStudy, kind: Training, sides: list[_Side], store: Store, given: dict[str, Any], as_json: bool
) -> TuningStudy:
    """The study with the winners' runs on fresh seeds, and the verdict if there are two."""
    from levelbench.cli.run_verb import compared
    from levelbench.cli.watching import measure_runs

    arms = [side.arm(found.best.settings) for side, found in zip(sides, study.sides, strict=True)]
    for side, arm in zip(sides, arms, strict=True):
        side.winner = arm.key
    _keep(study, sides, store)
    distinct = list({arm.key: arm for arm in arms}.values())
    plan, records = measure_runs(
        kind, distinct, given["runs"], folder=store.path, first_seed=study.fresh_seeds[0], as_json=as_json
    )
    # A rule chose these seeds, not somebody who saw the runs of others.
    groups, comparisons, refusals = compared(dataclasses.replace(plan, left_out=()), records, store, given)
    by_key = {group.key: group for group in groups}
    if len(distinct) < len(arms):
        refusals = [*refusals, "no verdict: both searches chose the same settings"]
    return dataclasses.replace(
        study,
        sides=tuple(
            dataclasses.replace(side, fresh=by_key.get(arm.key)) for side, arm in zip(study.sides, arms, strict=True)
        ),
        comparison=comparisons[0] if comparisons else None,
        refusals=tuple(refusals),
    )


def _conclude(study: TuningStudy, as_json: bool, given: dict[str, Any]) -> int:
    from levelbench.cli.run_verb import remark_lines
    from levelbench.report.tuning import sides_table, trials_table, write_tuning

    groups = list({side.fresh.key: side.fresh for side in study.sides if side.fresh is not None}.values())
    lines = [*study.lines(), *remark_lines(groups, [study.comparison] if study.comparison else [])]
    tables = [sides_table(study), trials_table(study)]

    def write() -> dict[str, str]:
        written = shared.write_tables(given, tables, [*study.answer(), *lines], title="Tuning")
        return written if given["plot"] is None else {**written, "plot": str(write_tuning(study, given["plot"]))}

    shared.present(tables, lines, lambda: _study_json(study, lines), write, answer=study.answer(), as_json=as_json)
    if len(study.sides) > 1:
        verdict = None if study.comparison is None else study.comparison.verdict
        return _CANNOT_TELL if verdict is None or verdict.kind == "UNCLEAR" else 0
    return 0 if any(run.reached for group in groups for run in group.runs) else _CANNOT_TELL


def _study_json(study: TuningStudy, lines: list[str]) -> dict[str, Any]:
    from levelbench.cli.reporting import comparison_json, group_json

    sides = [
        {
            "label": side.label,
            "space": side.space,
            "trials": side.trials,
            "ended": side.ended,
            "best": side.best,
            "spent_s": side.spent_s,
            "fresh": None if side.fresh is None else group_json(side.fresh),
        }
        for side in study.sides
    ]
    compared = None if study.comparison is None else comparison_json(study.comparison)
    rest = {
        each.name: getattr(study, each.name)
        for each in dataclasses.fields(study)
        if each.name not in ("sides", "comparison")
    }
    return {**rest, "objective": study.objective, "sides": sides, "comparison": compared, "lines": lines}
