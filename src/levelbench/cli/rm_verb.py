"""``levelbench rm``: remove runs with everything that belongs to them."""

from __future__ import annotations

import glob
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from levelbench.cli import options as shared
from levelbench.errors import UsageError
from levelbench.report.numbers import plural

if TYPE_CHECKING:
    from levelbench.records import Record, Store

__all__ = ["command"]

_SHOWN = 10
_BEGINNING = 1 << 20


@click.command("rm")
@click.argument("runs", nargs=-1, metavar="[RUNS]...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--superseded", is_flag=True, help="Remove only runs that --fresh has replaced, which no other command shows."
)
@shared.store_option
@shared.answer_options
def command(runs: tuple[str, ...], yes: bool, superseded: bool, store_path: Path, as_json: bool) -> int:
    """Remove RUNS: their records, copies of these in the store, their checkpoints and their trained networks.

    \b
      levelbench rm 3fa9
      levelbench rm 'digits[framework=jax,status=failed]' --yes
      levelbench rm --superseded

    A path means the records there, not their copies elsewhere. Asks first; what is removed cannot be recovered.
    """
    if not runs and not superseded:
        raise UsageError("levelbench rm", "it names no run", "give an id, a task with settings, a path or latest")
    store = shared.open_store(store_path)
    damaged = [] if superseded else [path for word in runs if (path := _damaged(store, word))]
    words = tuple(word for word in runs if not _damaged(store, word))
    records = _selected(store, words, superseded) if words or superseded else []
    if going := [record for record in records if record.status == "running"]:
        found = f"{len(going)} of them {'is' if len(going) == 1 else 'are'} running: {_ids(going)}"
        raise UsageError("levelbench rm", found, "wait until they have finished, or select others")
    files = [*damaged, *(path for record in records for path in _files(store, record))]
    if not yes and not _confirmed(records, files):
        click.echo("nothing was removed", err=as_json)
        return 0
    removed = [path for path in dict.fromkeys(files) if _removed(path)]
    ids = list(dict.fromkeys(record.header.id for record in records))
    if as_json:
        shared.emit_json({"runs": ids, "removed": [str(path) for path in removed]})
        return 0
    with shared.as_far_as_read():
        for path in removed:
            click.echo(shared.visible(f"removed {path}"))
        click.echo(f"{plural(len(ids), 'run')}, {plural(len(removed), 'file')} removed")
    return 0


def _damaged(store: Store, word: str) -> Path | None:
    """The unreadable record in the store that the path ``word`` names, if it is one: it can still be removed."""
    from levelbench.errors import RecordError
    from levelbench.records import read_record

    path = Path(word).expanduser().resolve()
    inside = path.is_relative_to(store.path.resolve())
    if "/" in word and path.exists() and not inside:
        do = f"name its store: --store {path if path.is_dir() else path.parent}"
        raise UsageError(f"levelbench rm {word}", f"it is outside the store {store.path}", do)
    if path.suffix != ".jsonl" or not path.is_file() or not inside:
        return None
    with path.open("rb") as file:
        if b'"kind":"' not in file.read(_BEGINNING):
            raise UsageError(f"levelbench rm {word}", "it is not the record of a run", "remove it with rm")
    try:
        read_record(path)
    except RecordError:
        return path
    return None


def _selected(store: Store, words: tuple[str, ...], superseded: bool) -> list[Record]:
    """The records of the selected runs, with their copies in the store; for a path, the records there."""
    from levelbench.records import parse_selector
    from levelbench.records.selection import Selector

    if superseded:
        found = [record for word in words or (None,) for record in store.superseded(word)]
        # The run that replaced them holds the mark of this: if it went alone, a remaining copy would count again.
        copies = [each for record in found for each in store.copies(Selector("", filters=(("id", record.header.id),)))]
        return list({record.path: record for record in [*found, *copies]}.values())
    chosen: dict[Path, Record] = {}
    for word in words:
        selector = parse_selector(word)
        for record in store.find(selector):
            if selector.path and not record.path.resolve().is_relative_to(store.path.resolve()):
                do = f"name its store: --store {record.path.parent}"
                raise UsageError(f"levelbench rm {word}", f"it is outside the store {store.path}", do)
            copies = [] if selector.path else store.copies(Selector("", filters=(("id", record.header.id),)))
            chosen |= {each.path: each for each in (record, *copies)}
    return list(chosen.values())


def _files(store: Store, record: Record) -> list[Path]:
    """The record, the files next to it that share its name, and the network that it trained."""
    from levelbench.experiments.inference.models import kept_facts, model_path

    header = record.header
    beside = sorted(record.path.parent.glob(f"{glob.escape(record.path.stem)}.*"))
    facts = kept_facts(store.path, header.key, header.seed)
    model = model_path(store.path, header.key, header.seed)
    kept = [model, model.with_suffix(".json")] if facts is not None and facts.run == header.id else []
    return [record.path, *(path for path in [*beside, *kept] if path != record.path and path.is_file())]


def _confirmed(records: list[Record], files: list[Path]) -> bool:
    count = f"{plural(len(records), 'record')} ({plural(len(files), 'file')})"
    if not sys.stdin.isatty():
        raise UsageError(f"removing {count}", "there is no terminal to ask on", "add --yes")
    names = _ids(records) or ", ".join(path.name for path in files[:_SHOWN])
    return click.confirm(f"remove {count}: {names}?", default=False, err=True)


def _ids(records: list[Record]) -> str:
    names = [f"{each.header.id[:8]} ({each.header.specification.task}, seed {each.header.seed})" for each in records]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _removed(path: Path) -> bool:
    from levelbench.records.locks import store_fault

    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise store_fault(f"removing {path}", path, error) from error
    return True
