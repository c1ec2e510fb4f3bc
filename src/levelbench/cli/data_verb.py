"""``levelbench data``: list datasets, download one, check its files and content, or describe it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from levelbench.cli.progress_line import ProgressLine
    from levelbench.training.datasets import Dataset, DatasetSource

__all__ = ["command"]

ACTIONS = ("list", "get", "check", "stat")
_MEBIBYTE = 1 << 20
_EVERY_BYTES = 4 * _MEBIBYTE


@click.command("data")
@click.argument("action", metavar=f"[{'|'.join(ACTIONS)}]")
@click.argument("name", required=False)
@click.option(
    "--data",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder of the dataset's files; no other folder is searched.",
)
@shared.answer_options
def command(action: str, name: str | None, folder: Path | None, as_json: bool) -> int:
    """List the datasets, download one, check its files and content, or describe what is in it.

    \b
      levelbench data list
      levelbench data get fashion-mnist
      levelbench data check cifar10 --data ~/cifar
      levelbench data stat digits

    check exits with 1 if the content breaks a rule, and with 3 if a file is missing or damaged.
    """
    if action not in ACTIONS:
        raise UnknownNameError("action of data", action, ACTIONS)
    if action != "list" and name is None:
        raise UsageError(
            f"levelbench data {action}", "it names no dataset", f"give one: levelbench data {action} digits"
        )
    from levelbench.training import datasets

    sources = [datasets.source(each) for each in ([name] if name else datasets.names())]
    if action == "list":
        return _list(sources, folder, as_json)
    return {"get": _get, "check": _check, "stat": _stat}[action](sources[0], folder, as_json)


def _list(sources: list[DatasetSource], folder: Path | None, as_json: bool) -> int:
    rows = [_facts(source, folder) for source in sources]
    if as_json:
        shared.emit_json({"datasets": rows})
        return 0
    from levelbench.report.tables import listing

    if len(rows) == 1:
        shared.print_tables(listing("dataset", rows[0]["name"], ["what", "is"], _pairs(rows[0])))
        return 0
    headers = ["name", "size", "here", "licence", "lacks"]
    shown = [[_words(_cells(row)[header]) for header in headers] for row in rows]
    shared.print_tables(listing("datasets", "datasets", headers, shown))
    click.echo("\nlevelbench data list NAME shows where a dataset comes from and how it is split")
    return 0


def _facts(source: DatasetSource, folder: Path | None) -> dict[str, Any]:
    """What is known about a source without loading it."""
    from levelbench.training.datasets.places import FileSource

    here: str | None = None
    if isinstance(source, FileSource):
        found = source.found(folder)
        here = found.label if found else None
    elif source.lacks(folder) is None:
        here = "made on demand" if source.name == "synthetic" else "here"
    return {
        "name": source.name,
        "size": getattr(source, "size", None),
        "here": here,
        "licence": source.licence,
        "lacks": source.lacks(folder),
        "to_download": source.awaits(folder),
        "from": getattr(source, "home", None),
        "cite": source.attribution,
        "split": getattr(source, "split_rule", None),
        "get": getattr(source, "ways", None),
    }


def _pairs(facts: dict[str, Any]) -> list[list[str]]:
    facts_known = {key: value for key, value in _cells(facts).items() if key != "to_download"}
    return [[key, _words(value)] for key, value in facts_known.items() if value is not None]


def _cells(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts for a table, with words in place of empty cells."""
    lacks = "its files: they are downloaded at first use" if facts["to_download"] else "nothing"
    return {**facts, "here": facts["here"] or "no", "lacks": facts["lacks"] or lacks}


def _words(value: Any) -> str:
    return "" if value is None else str(value)


def _get(source: DatasetSource, folder: Path | None, as_json: bool) -> int:
    from levelbench.cli.progress_line import ProgressLine

    with ProgressLine() as line:
        source.fetch(folder, _progress(source.name, line))
    facts = _facts(source, folder)
    if as_json:
        shared.emit_json(facts)
    else:
        click.echo(f"{source.name}: {facts['here'] or 'here'}")
    return 0


def _progress(name: str, line: ProgressLine) -> Any:
    """Report the progress of a download every few megabytes."""
    last = -1

    def progress(done_bytes: int, total_bytes: int | None) -> None:
        nonlocal last
        step = done_bytes // _EVERY_BYTES
        if step != last or done_bytes == total_bytes:
            last = step
            total = f" of {total_bytes / _MEBIBYTE:.1f}" if total_bytes else ""
            line.say(f"{name}: {done_bytes / _MEBIBYTE:.1f}{total} MiB")

    return progress


def _load(source: DatasetSource, folder: Path | None, *, reread: bool = False) -> Dataset:
    """The local dataset; nothing is downloaded unasked. ``reread`` skips cached copies."""
    from levelbench.errors import MissingError
    from levelbench.training.datasets.places import FileSource, named_folder

    # A named folder is left to ``load``, which looks nowhere else.
    if isinstance(source, FileSource) and named_folder(folder) is None and source.found(folder) is None:
        looked = ", ".join(str(place.folder) for place in source.places(folder))
        raise MissingError(f"the dataset {source.name}", f"its files are not in {looked}", source.ways)
    return source.checked(folder) if reread else source.load(folder)


def _check(source: DatasetSource, folder: Path | None, as_json: bool) -> int:
    from levelbench.cli.progress_line import ProgressLine
    from levelbench.training.datasets.contents import faults

    dataset = _load(source, folder, reread=True)
    place = source.where(folder)
    with ProgressLine() as line:

        def progress(done: int, total: int) -> None:
            if line.live:
                line.say(f"{source.name}: {done:,} of {total:,} examples")

        found = faults(dataset, progress)
    if as_json:
        shared.emit_json({**_described(dataset), "place": place, "faults": found})
        return int(bool(found))
    for name, digest in dataset.checksums.items():
        click.echo(f"{digest}  {name}")
    if place is not None:
        click.echo(f"checked: {shared.visible(place)}")
    for each in found:
        shared.say(f"fault: {each}")
    sizes = ", ".join(f"{count:,} {name}" for name, count in dataset.sizes().items())
    shared.say(f"{dataset.name}: {sizes}; {f'{len(found)} faults' if found else 'files and content are correct'}")
    return int(bool(found))


def _described(dataset: Dataset) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "sizes": dataset.sizes(),
        "classes": dataset.classes,
        "synthetic": dataset.synthetic,
        "checksums": dataset.checksums,
        "source": dataset.source,
        "licence": dataset.licence,
        "split": dataset.split_rule,
    }


def _stat(source: DatasetSource, folder: Path | None, as_json: bool) -> int:
    from levelbench.cli.progress_line import ProgressLine

    dataset = _load(source, folder)
    with ProgressLine() as line:

        def progress(done: int) -> None:
            if line.live:
                line.say(f"{source.name}: {done:,} of {len(dataset.train):,} training examples")

        found = figures(dataset, progress)
    if as_json:
        shared.emit_json({**_described(dataset), **found})
    else:
        print_figures(dataset, found)
    return 0


_MOST_CLASSES = 20


def figures(dataset: Dataset, progress: Callable[[int], None]) -> dict[str, Any]:
    """Class balance by split with a chi-squared test, moments of the inputs, duplicate inputs.

    ``progress`` is called with the number of training examples read so far.
    """
    from levelbench.training.datasets import contents

    splits = {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}
    balance: dict[str, Any] = {}
    for name, split in splits.items():
        counts = contents.class_counts(split, dataset.classes)
        if counts is not None:
            test = contents.evenness(counts)
            balance[name] = {"counts": counts.tolist(), "chi_squared": test.statistic, "p_value": test.p_value}
    found = contents.moments(dataset.train, progress)
    equal = contents.duplicates(dataset)
    inputs = dataset.train.inputs
    return {
        "inputs": {"shape": list(inputs.shape[1:]), "dtype": str(inputs.dtype)},
        "balance": balance,
        "moments": {"mean": list(found.mean), "std": list(found.std)} if found else None,
        "duplicates": {"within": equal.within, "across": equal.across} if equal else None,
    }


def print_figures(dataset: Dataset, found: dict[str, Any]) -> None:
    """Tables of :func:`figures`."""
    from levelbench.report.tables import listing

    shape = "x".join(map(str, found["inputs"]["shape"]))
    marked = ", synthetic" if dataset.synthetic else ""
    click.echo(f"{dataset.name}{marked}: inputs of {shape} {found['inputs']['dtype']}, {dataset.classes} classes\n")
    balance = found["balance"]
    of_classes = ["smallest class", "largest class", "equal classes"] if balance else []
    rows = [_row(dataset, found, name) for name in dataset.sizes()]
    shared.print_tables(listing("splits", "splits", ["split", "examples", *of_classes], rows))
    if balance and dataset.classes <= _MOST_CLASSES:
        click.echo()
        rows = [[str(at), *(str(balance[name]["counts"][at]) for name in balance)] for at in range(dataset.classes)]
        shared.print_tables(listing("classes", "classes", ["class", *balance], rows))
    click.echo()
    if found["moments"]:
        means, deviations = (", ".join(f"{each:.4f}" for each in found["moments"][key]) for key in ("mean", "std"))
        shared.say(f"training inputs as stored: mean {means}; standard deviation {deviations}")
    if dataset.normalisation:
        constants = dataset.normalisation
        scaled = [", ".join(f"{each:.4f}" for each in values) for values in (constants.mean, constants.std)]
        shared.say(f"normalised: (x / {constants.highest:g} - {scaled[0]}) / {scaled[1]} ({constants.source})")
    if found["duplicates"]:
        equal = found["duplicates"]
        within = ", ".join(f"{count:,} in {name}" for name, count in equal["within"].items())
        across = ", ".join(f"{count:,} in {pair}" for pair, count in equal["across"].items())
        shared.say(f"duplicate inputs: surplus {within}; shared {across}")


def _row(dataset: Dataset, found: dict[str, Any], name: str) -> list[str]:
    from levelbench.measure.statistics import p_text

    size = f"{dataset.sizes()[name]:,}"
    if name not in found["balance"]:
        return [name, size]
    balance = found["balance"][name]
    test = f"chi-squared {balance['chi_squared']:.4g}, {p_text(balance['p_value'])}"
    return [name, size, f"{min(balance['counts']):,}", f"{max(balance['counts']):,}", test]
