"""``levelbench.run``, ``compare`` and ``report``: the verbs of the command line as functions that return objects.

They take the command's options by name (``until_clear=True`` is ``--until-clear``), and its own parser reads them, so
that a default, a check or an error is the same in both places.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import compare_verb, report_verb, run_verb
from levelbench.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from levelbench.analysis.comparison import Comparison
    from levelbench.measure.verdict import Verdict
    from levelbench.records import Record, RunGroup, RunSummary, Store
    from levelbench.report.tables import Table

__all__ = ["Measured", "compare", "report", "run"]

Option = str | int | float | bool | Path | None | Iterable[str]
Folder = str | Path

_NOT_IN_PYTHON = frozenset(
    {"json", "debug", "report", "no-report", "csv", "markdown", "fail-on", "wide", "store", "folder", "output", "help"}
)
"""What prints, writes or ends the process on the command line; a function has its own parameters for it."""


@dataclass(frozen=True)
class Measured:
    """What :func:`run` measured. ``groups`` has one for each task or setting, ``comparisons`` each against the first.

    ``refusals`` say which groups could not be compared, and why. Text and notebooks show what the command prints.
    """

    groups: tuple[RunGroup, ...]
    comparisons: tuple[Comparison, ...]
    refusals: tuple[str, ...]
    store: Store
    records: tuple[Record, ...]

    @property
    def comparison(self) -> Comparison:
        """The only comparison; ``UsageError`` if there is none, or if there are several."""
        if len(self.comparisons) == 1:
            return self.comparisons[0]
        why = self.refusals[0] if self.refusals else f"{len(self.groups)} groups were measured"
        do = "name two tasks or settings to compare" if not self.comparisons else "choose one of .comparisons"
        raise UsageError("the comparison", f"there are {len(self.comparisons)} ({why})", do)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict of the only comparison; ``None`` if the gate withholds it."""
        return self.comparison.verdict

    @property
    def ratio(self) -> float | None:
        """The second group's time over the first one's; ``None`` without a verdict."""
        return self.verdict.ratio if self.verdict else None

    @property
    def runs(self) -> list[RunSummary]:
        """Every run, by group."""
        return [run for group in self.groups for run in group.runs]

    def report(self, path: Folder) -> Path:
        """Write the HTML report that the command would write, to ``path``; ``StoreError`` if that fails."""
        from levelbench.cli.reporting import write

        return write(self.groups, self.records, self.comparisons, Path(path), refusals=self.refusals)[0]

    def to_pandas(self) -> Any:
        """A row for each run, as :meth:`Store.to_pandas`; ``MissingError`` without pandas."""
        from levelbench.records.store import runs_to_pandas

        return runs_to_pandas(self.runs)

    def _table(self) -> Table:
        from levelbench.report.runs import groups_table

        return groups_table(self.groups)

    def __str__(self) -> str:
        """What the command prints: the verdict and why, the table, and each doubt once."""
        from levelbench.report.tables import to_text

        answer = run_verb.answer_lines(self.comparisons, self.refusals)
        below = run_verb.remark_lines(list(self.groups), self.comparisons)
        return "\n".join([*answer, *([""] if answer else []), to_text(self._table().without_absent()), *below])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from levelbench.report.notebook import measured_html

        answer = run_verb.answer_lines(self.comparisons, self.refusals)
        below = run_verb.remark_lines(list(self.groups), self.comparisons)
        return measured_html(answer, self._table(), [line.strip() for line in below], self.groups)


def run(
    *tasks: str | Path | Iterable[str | Path],
    n: int | None = None,
    framework: str | Iterable[str] | None = None,
    store: Folder | Store | None = None,
    progress: bool = True,
    **options: Option,
) -> Measured:
    """Train each of ``tasks`` to its target ``n`` (5) times, in separate processes, and compare them with the first.

    A task is a name or the path of a Python file, with settings in brackets, as for ``levelbench run``, or a list of
    these; every option of that command has its name here (``recipe``, ``target``, ``until_clear``, ...), and several
    values are a list. Runs that ``store`` (default: ``$LEVELBENCH_STORE`` or ``levelbench-results``) already has are
    not repeated. Progress is printed on standard error. No report is written: see :meth:`Measured.report`.

    >>> import levelbench, tempfile
    >>> store = tempfile.mkdtemp()
    >>> found = levelbench.run("digits", n=2, framework="numpy", store=store, progress=False)
    >>> found.groups[0].reached
    2

    Raises ``UnknownNameError`` for an option or name that does not exist, ``UsageError`` for impossible values,
    ``MissingError`` for a framework, data or device that is not here, and ``StoreError`` if nothing can be written.
    """
    words = [str(each) for some in tasks for each in ([some] if isinstance(some, str | Path) else some)]
    given: dict[str, Option] = {"runs": n, "framework": framework, **options}
    found = _parsed(run_verb.command, words, given)
    with contextlib.nullcontext() if progress else contextlib.redirect_stderr(io.StringIO()), found:
        values = dict(found.params)
        names = values.pop("tasks")
        del values["store_path"], values["as_json"]
        place = _store(store)
        plan, records, _ = run_verb.measured(names, place.path, as_json=True, given=values)
        groups, comparisons, refusals = run_verb.compared(plan, records, place, values)
    return Measured(tuple(groups), tuple(comparisons), tuple(refusals), place, tuple(records.values()))


def compare(a: str | RunGroup, b: str | RunGroup, *, store: Folder | Store | None = None, **options: Any) -> Comparison:
    """Compare the runs of ``b`` with those of ``a``, the baseline: groups of runs, or selectors of ``store``'s runs.

    Options are those of ``levelbench compare``: ``margin``, ``level``, ``across_machines``; for selectors also
    ``clock``, ``crossing`` and ``target``, which read the same records in another way. A ratio below 1 means that ``b``
    is faster. ``str``, ``print`` and notebooks show the verdict, why, and what speaks against it.

    >>> import levelbench, tempfile
    >>> store = tempfile.mkdtemp()
    >>> tasks = ["digits[lr=0.1]", "digits[lr=0.2]"]
    >>> _ = levelbench.run(tasks, n=3, framework="numpy", store=store, progress=False)
    >>> found = levelbench.compare(*tasks, store=store)
    >>> found.verdict.n_a, found.verdict.n_b
    (3, 3)

    Raises ``UsageError`` for a selector without runs, and ``IncomparableError`` or ``RecordError`` for what the gate
    refuses.
    """
    from levelbench.analysis.comparison import compare as compare_groups

    if not isinstance(a, str) and not isinstance(b, str):
        return compare_groups(a, b, **options)
    if not isinstance(a, str) or not isinstance(b, str):
        words = "two selectors or two groups"
        raise UsageError("levelbench.compare", "one side is a selector and the other a group", f"give {words}")
    with _parsed(compare_verb.command, [a, b], options) as found:
        return compare_verb.compared(_store(store), a, b, found.params)[1]


def report(
    runs: str | Iterable[str] = (),
    *,
    path: Folder | None = None,
    folder: Folder | None = None,
    markdown: Folder | None = None,
    csv: Folder | None = None,
    store: Folder | Store | None = None,
    **options: Option,
) -> Path:
    """Write the report on ``runs`` (default: all of ``store``) to ``path``, and return where it is.

    Without a ``path`` it is ``report.html`` in the store, or, for ``runs``, a file with a name of its own.

    ``folder`` instead gets an index and a page for each task. ``markdown`` and ``csv`` get every table as well. Other
    options are those of ``levelbench report``: ``clock``, ``level``, ``across_machines``, ...

    >>> import levelbench, tempfile
    >>> store = tempfile.mkdtemp()
    >>> _ = levelbench.run("digits", n=2, framework="numpy", store=store, progress=False)
    >>> levelbench.report(store=store).name
    'report.html'

    Raises ``UsageError`` if there are no such runs, ``RecordError`` for a damaged record, and ``StoreError`` if a file
    cannot be written.
    """
    if "history" in options:
        raise UsageError(
            "levelbench.report(history=...)", "it is a page of its own", "call levelbench report --history"
        )
    words = [runs] if isinstance(runs, str) else list(runs)
    with _parsed(report_verb.command, words, options) as found:
        files = {"output": path, "folder": folder, "markdown": markdown, "csv_folder": csv}
        places = {name: None if each is None else Path(each) for name, each in files.items()}
        return report_verb.written(_store(store), tuple(words), {**found.params, **places})[0][0]


def _store(store: Folder | Store | None) -> Store:
    from levelbench.records import Store as Folder

    if store is None:
        return Folder(os.environ.get("LEVELBENCH_STORE", "levelbench-results"))
    return store if isinstance(store, Folder) else Folder(store)


def _parsed(command: click.Command, words: Iterable[str], options: dict[str, Any]) -> click.Context:
    """The context of ``command`` as if it had been typed."""
    known = {each.opts[-1].removeprefix("--"): each for each in command.params if isinstance(each, click.Option)}
    typed = []
    for name, value in options.items():
        dashed = name.replace("_", "-")
        if dashed not in known or dashed in _NOT_IN_PYTHON:
            usable = [each.replace("-", "_") for each in known if each not in _NOT_IN_PYTHON]
            raise UnknownNameError(f"option of levelbench.{command.name}", name, usable)
        typed += _typed(f"--{dashed}", known[dashed], value)
    try:
        return command.make_context(f"levelbench.{command.name}", [*typed, "--", *words])
    except click.ClickException as error:
        name = f"levelbench.{command.name}"
        raise UsageError(name, error.format_message().rstrip("."), f"see help({name})") from None


def _typed(word: str, option: click.Option, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    if option.is_flag:
        if value is not True:
            raise UsageError(f"{word[2:].replace('-', '_')}={value!r}", "it is True or False", "give one of these")
        return [word]
    several = list(map(str, value)) if isinstance(value, list | tuple) else [str(value)]
    # Joined to its option, so that a value may begin with a dash.
    return [f"{word}={each}" for each in (several if option.multiple else [",".join(several)])]
