"""``levelbench list``: what can run here and what is missing, or the runs in the store."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import LevelbenchError, UnknownNameError

if TYPE_CHECKING:
    from levelbench.records import Store
    from levelbench.training.task import Task

__all__ = ["command"]

_TRAINING = ("tasks", "recipes", "settings")
_WHAT_THERE_IS = (*_TRAINING, "frameworks", "suites", "networks", "transforms", "schemes", "engines", "clocks")
KINDS = (*_WHAT_THERE_IS, "runs", "inference", "commands")
# Long or slow to list: shown only on request.
_ASKED_FOR = ("recipes", "settings", "networks", "transforms", "schemes", "engines")
_COUNTS = ("parameters", "published parameters", "published multiply-adds")
_EXACT = 1e6
_AWAITS = "to_download"


@click.command("list", epilog=f"KIND: {', '.join(KINDS)}.")
@click.argument("kind", required=False, metavar="[KIND]")
@click.argument("selection", required=False)
@click.option("--runnable", is_flag=True, help="List only what can run here.")
@click.option("--sort", default="-started", show_default=True, help="Sort runs by a column; a minus sign reverses.")
@click.option("--all", "with_superseded", is_flag=True, help="Include runs that --fresh has replaced.")
@click.option("--limit", type=click.IntRange(min=1), default=30, show_default=True, help="Show at most this many runs.")
@shared.printing_options
@shared.store_option
@shared.answer_options
def command(
    kind: str | None,
    selection: str | None,
    runnable: bool,
    sort: str,
    with_superseded: bool,
    limit: int,
    store_path: Path,
    as_json: bool,
) -> int:
    """List tasks, frameworks, networks, ... and what each of them lacks here; or list the contents of the store.

    \b
      levelbench list
      levelbench list settings digits
      levelbench list networks resnet
      levelbench list runs 'digits[framework=torch]' --sort time_to_accuracy_s --limit 10
      levelbench list inference 'digits[scenario=offline]' --sort samples_per_s
      levelbench list commands 'python train.py' --sort wall_s
    """
    if kind is not None and kind not in KINDS:
        raise UnknownNameError("list", kind, KINDS)
    if kind == "runs":
        return _runs(store_path, selection, sort, limit, as_json, with_superseded)
    if kind in ("inference", "commands"):
        return _processes(kind, store_path, selection, sort, limit, as_json)
    makers = {
        "tasks": _tasks,
        "recipes": _recipes,
        "settings": _settings,
        "frameworks": _frameworks,
        "suites": _suites,
        "networks": _networks,
        "transforms": _transforms,
        "schemes": _schemes,
        "engines": _engines,
        "clocks": _clocks,
    }
    chosen = {
        name: make() for name, make in makers.items() if name == kind or (kind is None and name not in _ASKED_FOR)
    }
    if selection is not None and kind is not None:
        chosen = {kind: _selected(kind, chosen[kind], selection)}
    if runnable:
        chosen = {name: [row for row in rows if not row.get("lacks")] for name, rows in chosen.items()}
    if as_json:
        shared.emit_json(chosen)
        return 0
    from levelbench.report.tables import listing

    shared.print_tables(*(_table(listing, name, rows) for name, rows in chosen.items()))
    if kind == "settings":
        from levelbench.experiments.request import TEAM_WORDS

        words = ", ".join(("recipe", "framework", "device", "target", *TEAM_WORDS))
        shared.say(f"The brackets of every task may also have {words}: see levelbench run --help.")
    if kind is None:
        shared.say(
            "",
            "levelbench list recipes and list settings show what is allowed in a task's brackets",
            "levelbench list networks and list transforms show Level 1, list schemes and list engines Level 3",
        )
    return 0


def _selected(kind: str, rows: list[dict[str, object]], word: str) -> list[dict[str, object]]:
    """The rows whose name or task is the word; if there are none, those that contain it."""
    names = [str(next(iter(row.values()))) for row in rows]
    found = [row for row, name in zip(rows, names, strict=True) if name == word]
    found = found or [row for row, name in zip(rows, names, strict=True) if word in name]
    if not found:
        raise UnknownNameError("task" if kind in _TRAINING else kind.removesuffix("s"), word, sorted(set(names)))
    return found


def _table(listing: Any, name: str, rows: list[dict[str, object]]) -> Any:
    headers = [each for each in rows[0] if each != _AWAITS] if rows else ["name"]
    shown = [[_lacks(row) if header == "lacks" else _words(row[header], header) for header in headers] for row in rows]
    return listing(name, name, headers, shown)


def _words(value: Any, header: str) -> str:
    if isinstance(value, int | float) and header in _COUNTS:
        return _count(value)
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _lacks(row: dict[str, object]) -> str:
    if row["lacks"] is None:
        awaited = row.get(_AWAITS)
        return f"data: to be downloaded ({awaited})" if awaited else "nothing: it runs here"
    return _words(row["lacks"], "lacks")


def _count(value: float) -> str:
    """All digits of a count; three digits of an amount of arithmetic."""
    if value < _EXACT or isinstance(value, int):
        return f"{value:,.0f}"
    return next(
        f"{value / size:.3g} {symbol}" for size, symbol in ((1e12, "T"), (1e9, "G"), (1e6, "M")) if value >= size
    )


def _tasks() -> list[dict[str, object]]:
    from levelbench import plugins
    from levelbench.experiments.request import load_task
    from levelbench.report.runs import target_text

    folder = Path(os.environ["LEVELBENCH_DATA"]) if os.environ.get("LEVELBENCH_DATA") else None
    rows: list[dict[str, object]] = []
    for name in sorted(plugins.names("task")):
        row = dict.fromkeys(("task", "what", "target", "recipes", "licence of the data", "lacks", _AWAITS))
        try:
            task = load_task(name)
        except LevelbenchError as error:
            rows.append({**row, "task": name, "lacks": error.found})
            continue
        rows.append(
            {
                "task": name,
                "what": task.description,
                "target": target_text(task.quality.as_target()),
                "recipes": list(task.recipes),
                "licence of the data": task.data.licence,
                "lacks": task.data.lacks(folder) or task.quality.lacks(),
                _AWAITS: task.data.awaits(folder),
            }
        )
    return rows


def _each_recipe() -> Iterator[tuple[Task, str, str]]:
    """Every recipe of every task that loads, with its description."""
    from levelbench import plugins
    from levelbench.experiments.request import load_task

    for name in sorted(plugins.names("task")):
        with suppress(LevelbenchError):
            task = load_task(name)
            for recipe in task.recipes:
                yield task, recipe, inspect.getdoc(task.recipe_function(recipe)) or ""


def _recipes() -> list[dict[str, object]]:
    return [
        {"task": task.name, "recipe": recipe, "what": text.partition("\n\n")[0].replace("\n", " ")}
        for task, recipe, text in _each_recipe()
    ]


def _settings() -> list[dict[str, object]]:
    """The settings that each recipe takes, with the meaning in its docstring (``:param lr:``), or the usual one."""
    return [
        {
            "task": task.name,
            "recipe": recipe,
            "setting": name,
            "default": str(default),
            "meaning": told[1].strip() if (told := re.search(rf":param {name}:(.*)", text)) else _MEANINGS.get(name),
        }
        for task, recipe, text in _each_recipe()
        for name, default in task.settings(recipe, {}).items()
    ]


_MEANINGS = {
    "accumulate": "batches per update",
    "average": "decay of the moving average of the weights",
    "balance": "weight of the loss that balances experts",
    "batch": "examples per step",
    "blocks": "convolution blocks of an encoder",
    "channels": "channels of the first convolution",
    "channels_last": "layout of images in memory",
    "chosen": "experts that compute a token",
    "clip": "how far the probability of an action may change on one rollout, as a share",
    "cosines": "whether the first kernels are fixed cosines",
    "cutout": "edge of the square that is cut out of an image, in pixels",
    "dropout": "share of the activations that are dropped",
    "entropy": "weight of the policy's entropy in the loss",
    "environments": "environments that the network acts in at a time",
    "epochs": "passes over the data, or rollouts: the length of the schedule, or the budget",
    "experts": "experts of each mixture",
    "factors": "numbers that stand for a user, and for an item",
    "flip": "whether images are mirrored at random",
    "gain": "factor of the initial weights",
    "groups": "groups of heads that share keys and values",
    "heads": "heads of each attention",
    "hidden": "units of a hidden layer",
    "inner": "units of the inner layer of a block",
    "layers": "layers of the network",
    "length": "steps of each environment in a rollout",
    "lr": "learning rate, the highest of the schedule",
    "momentum": "momentum of the optimizer",
    "nesterov": "whether the momentum is Nesterov's",
    "survival": "probability that the last residual branch is kept in a step of training (stochastic depth); 1: always",
    "passes": "how often a rollout is trained on",
    "precision": "dtype of the computation: float32, bfloat16, ...",
    "progressive": "whether images grow during training",
    "residual": "whether there are residual connections",
    "smoothing": "label smoothing",
    "trace": "decay of later errors in an advantage: 0 is one step, 1 the sum of rewards",
    "warmup": "length of the learning rate's warm-up",
    "weight_decay": "weight decay of the optimizer",
    "width": "channels or units of the narrowest part",
    "workers": "processes that prepare batches",
}


def _frameworks() -> list[dict[str, object]]:
    from levelbench import plugins

    return [_framework(name) for name in sorted(plugins.names("framework"))]


def _framework(name: str) -> dict[str, object]:
    """What it does and lacks; a plug-in that fails to load is listed with its error, and does not hide the others."""
    from levelbench.operators.frameworks import load_framework

    try:
        found = load_framework(name)
        does = [word for word, can in (("operators", found.operators), ("training", found.trains)) if can]
        return {"framework": name, "does": ", ".join(does), "lacks": found.lacks()}
    except LevelbenchError as error:
        return {"framework": name, "does": None, "lacks": error.found}
    except Exception as error:  # noqa: BLE001  # the boundary to a plug-in
        return {"framework": name, "does": None, "lacks": f"its plug-in fails ({type(error).__name__}: {error})"}


def _suites() -> list[dict[str, object]]:
    from levelbench.operators.suites.deepbench import all_reduce_messages, load_suite, subsets_of, suite_names

    *operators, messages = suite_names()
    rows: list[dict[str, object]] = []
    for name in operators:
        subsets = subsets_of(name)
        rows.append(
            {"suite": name, "problems": sum(len(load_suite(name, each)) for each in subsets), "subsets": subsets}
        )
    return [*rows, {"suite": messages, "problems": len(all_reduce_messages()), "subsets": "for distributed training"}]


def _networks() -> list[dict[str, object]]:
    """The zoo: what each network has by our own count, and where that differs from the published figures."""
    from levelbench.networks import zoo

    rows: list[dict[str, object]] = []
    for name in zoo.names():
        found = zoo.entry(name)
        rows.append(
            {
                "network": name,
                "kind": found.kind,
                "parameters": zoo.build(name).parameter_count(),
                "published parameters": found.published.parameters,
                "published multiply-adds": found.published.multiply_adds,
                "what": found.summary,
                "paper": found.paper,
                "note": found.published.note,
            }
        )
    return rows


def _transforms() -> list[dict[str, object]]:
    from levelbench.networks import transforms

    return [
        {"transform": name, "what": transforms.summary(name), "settings": list(transforms.settings(name))}
        for name in transforms.names()
    ]


_OF_SCHEMES = ("scheme", "also called", "promises", "settings", "source", "frameworks", "lacks")


def _schemes() -> list[dict[str, object]]:
    from levelbench import plugins
    from levelbench.distributed.finding import named_scheme, settings_of

    rows: list[dict[str, object]] = []
    seen = set()
    for name in sorted(plugins.names("scheme")):
        try:
            scheme = named_scheme(name)
        except LevelbenchError as error:
            rows.append({**dict.fromkeys(_OF_SCHEMES), "scheme": name, "lacks": str(error)})
            continue
        if type(scheme) in seen:
            continue
        seen.add(type(scheme))
        promises = [word for word in ("consistent", "replicated", "lockstep") if getattr(scheme, word)]
        settings = [f"{key}={value}" for key, value in settings_of(scheme).items()]
        rows.append(
            {
                "scheme": scheme.name,
                "also called": list(scheme.aliases),
                "promises": promises,
                "settings": settings,
                "source": scheme.source,
                "frameworks": list(scheme.frameworks) or "all",
                "lacks": scheme.lacks(),
            }
        )
    return sorted(rows, key=lambda row: str(row["scheme"]))


def _engines() -> list[dict[str, object]]:
    from levelbench.distributed.launching import ENGINES

    return [
        {"engine": name, "communicators": list(engine.communicators), "lacks": engine.lacks()}
        for name, engine in ENGINES.items()
    ]


def _clocks() -> list[dict[str, object]]:
    from levelbench.measure.policies import POLICIES

    return [{"clock": each.name, "what counts": each.source} for each in POLICIES.values()]


def _runs(store_path: Path, selection: str | None, sort: str, limit: int, as_json: bool, with_superseded: bool) -> int:
    from levelbench.report.runs import rows_table

    store = shared.open_store(store_path)
    rows = store.rows(
        selection,
        order_by=sort.removeprefix("-"),
        descending=sort.startswith("-"),
        limit=limit,
        with_superseded=with_superseded,
    )
    for problem in store.problems:
        click.echo(f"unreadable: {problem}", err=True)
    if not rows and selection:
        store.require_known(selection)
        _require_task_or_run(store, selection.partition("[")[0])
    if as_json:
        shared.emit_json_list(rows)
        return 0
    if not rows:
        click.echo(f"no runs{f' of {selection}' if selection else ''} in {store.path}: try levelbench run digits")
    else:
        shared.print_tables(rows_table(rows))
    for kind, (what, _) in _OF_PROCESSES.items():
        if (store_path / kind).is_dir():
            click.echo(f"\nlevelbench list {kind} shows the {what}")
    return 0


_OF_PROCESSES = {
    "inference": ("measurements of inference", "try levelbench infer digits"),
    "commands": ("commands that were timed", "try levelbench time 'python train.py'"),
}
"""Kinds with one process per record: what they are, and how to get some."""


def _require_task_or_run(store: Store, word: str) -> None:
    """Raise what reading a run would raise for a ``word`` that is no task, and neither has the store such a run."""
    from levelbench import plugins

    if word and word not in plugins.names("task") and store.rows(limit=1) and not store.rows(word):
        store.find(word)


def _processes(kind: str, store_path: Path, selection: str | None, sort: str, limit: int, as_json: bool) -> int:
    """One row per process; missing figures are sorted last in either direction."""
    from levelbench.records.commands import CommandRecord
    from levelbench.records.inference import InferenceRecord
    from levelbench.records.process_selection import select_processes
    from levelbench.report.commands import command_row, command_rows_table
    from levelbench.report.inference import inference_row, inference_rows_table

    name, descending = sort.removeprefix("-"), sort.startswith("-")
    most = limit if (name, descending) == ("started", True) else None
    if kind == "inference":
        found = select_processes(InferenceRecord, store_path, selection or "", most)
        rows, make = [inference_row(each) for each in found], inference_rows_table
    else:
        timed = select_processes(CommandRecord, store_path, selection or "", most)
        rows, make = [command_row(each) for each in timed], command_rows_table
    if rows and name not in rows[0]:
        raise UnknownNameError(f"column of {kind}", name, list(rows[0]))
    known = sorted((row for row in rows if row[name] is not None), key=lambda row: row[name], reverse=descending)
    rows = [*known, *(row for row in rows if row[name] is None)][:limit]
    if as_json:
        shared.emit_json(rows)
    elif not rows:
        of = f" of {selection}" if selection else ""
        click.echo(f"no {kind}{of} in {store_path}: {_OF_PROCESSES[kind][1]}")
    else:
        shared.print_tables(make(rows))
    return 0
