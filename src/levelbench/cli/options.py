"""Options and small helpers that several verbs share."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import textwrap
import traceback
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from levelbench.errors import LevelbenchError, MissingError, StoreError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from levelbench.experiments.kernel import Looked, UntilClear
    from levelbench.experiments.request import TeamOptions
    from levelbench.measure.verdict import Verdict
    from levelbench.records import RunGroup, RunSummary, Store
    from levelbench.records.selection import Selector
    from levelbench.report.tables import Table

    Price = tuple[str, Selector | None, float]

__all__ = ["OPTION_GROUPS", "Grouped", "answer_options", "apply_view", "as_far_as_read", "as_named", "check_plot"]
__all__ += ["check_statistics", "check_writable", "code_until_clear", "data_option", "debug_option", "each_run"]
__all__ += ["effect_option", "emit_json", "emit_json_list", "error_parts", "fail_on", "json_option"]
__all__ += [
    "json_text",
    "listed_schemes",
    "mute",
    "need_two",
    "no_color_option",
    "open_store",
    "present",
    "price_option",
]
__all__ += [
    "priced",
    "print_tables",
    "printing_options",
    "read_fail_on",
    "read_prices",
    "readable_runs",
    "refuse_overruled",
    "say",
]
__all__ += ["say_error", "say_look", "seconds", "select_runs", "spawn_option", "statistics_options"]
__all__ += ["store_option", "table_options", "team", "team_options", "until_clear", "until_clear_options"]
__all__ += ["view_options", "visible", "write_tables"]

Command = TypeVar("Command", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print machine-readable output on standard output.")
debug_option = click.option("--debug", is_flag=True, help="Show the traceback of an error.")
spawn_option = click.option(
    "--spawn", is_flag=True, help="Start a new interpreter for each process, instead of forking one that has imported."
)


def answer_options(command: Command) -> Command:
    """``--json``, passed as ``as_json``, and ``--debug``, which only the code that prints errors looks at."""
    debug = click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
    return json_option(debug(command))


OPTION_GROUPS = {
    "When a run ends": "target crossing every epochs budget until_clear effect budget_samples budget_joules plateau",
    "Distributed training": "ranks scheme engine communicator scaling lr_scale timeout simulate network",
    "Verdict": "clock threshold margin level fail_on",
    "Data and records": "data store_path fresh checkpoint keep_model observe spawn",
    "Output": "prices csv_path markdown_path wide columns no_color report_path no_report plot as_json debug",
}
"""Headings of the help of verbs with many options, and the parameters under each."""


class Grouped(click.Command):
    """A command whose help shows its options in ``groups``; those of no group come first."""

    def __init__(self, *given: Any, groups: Mapping[str, str] = MappingProxyType(OPTION_GROUPS), **more: Any) -> None:
        super().__init__(*given, **more)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One section for each group that has options."""
        titles = {name: title for title, names in self.groups.items() for name in names.split()}
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *self.groups)}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)) is not None:
                sections[titles.get(parameter.name or "", "Options")].append(record)
        # One width for all, so that the columns of the sections align.
        widest = max(len(option) for records in sections.values() for option, _ in records)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl([(f"{option:<{min(widest, _WIDEST_OPTION)}}", said) for option, said in records])


_WIDEST_OPTION = 24


def several(*names: str, default: str | None = None, **more: Any) -> Callable[[Command], Command]:
    """An option of names or numbers separated by commas; given twice, it has those of both."""

    def joined(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> str | None:
        return ",".join(given) if given else default

    return click.option(*names, multiple=True, default=(default,) if default else None, callback=joined, **more)


data_option = click.option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="LEVELBENCH_DATA",
    help="Folder of the dataset; default: $LEVELBENCH_DATA.",
)
store_option = click.option(
    "--store",
    "store_path",
    type=click.Path(path_type=Path),
    default=lambda: Path(os.environ.get("LEVELBENCH_STORE", "levelbench-results")),
    show_default="$LEVELBENCH_STORE or levelbench-results",
    help="Folder of the records.",
)
effect_option = click.option(
    "--effect", type=float, help="Difference that --until-clear is planned to detect.  [default: 0.05]"
)
_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ns|us|µs|ms|s|min|h)?")
_PRICE = re.compile(r"\$?(\d+(?:\.\d*)?|\.\d+)\s*(?:USD\s*)?(?:/\s*h|per hour|an hour)?")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_PART = 500
"""Number of elements of a long list that are printed at once."""
_UNCLEAR = 4
_VERDICTS = ("slower", "unclear", "missed", "never")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def view_options(command: Command) -> Command:
    """Options for another reading of the same records: ``clock``, ``crossing`` and ``threshold``."""
    for option in (
        click.option("--target", "threshold", type=float, help="Target to judge by, instead of the runs' own."),
        click.option("--crossing", help="Rule by which a target counts as reached: confirmed, first, sustained, ..."),
        click.option("--clock", help="Clock policy: wall, dawnbench, mlperf, algoperf."),
    ):
        command = option(command)
    return command


price_option = click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="[RUNS=]PRICE",
    help="USD of the whole system (3.06/h) or a cloud instance (p3.2xlarge), for the cost; for RUNS, or for all.",
)


def read_prices(texts: Sequence[str]) -> list[Price]:
    """What ``--price`` gives, before anything is measured.

    ``UsageError`` for what is no price, and for an instance that the table of hardware has no price of.
    """
    from levelbench.records.selection import parse_selector

    prices = []
    for text in texts:
        word, equals, price = text.rpartition("=")
        selector = parse_selector(word) if equals else None
        if selector is not None and selector.latest is not None:
            found = "a price is not that of the latest runs"
            raise UsageError(f"--price {text}", found, "name the task with its settings")
        prices.append((text, selector, _usd_per_hour(text, price.strip())))
    return prices


def priced(groups: Sequence[RunGroup], prices: Sequence[Price]) -> list[RunGroup]:
    """``groups`` with their hourly prices: the last one whose selection matches a run counts.

    ``UsageError`` for a selection that matches no group.
    """
    found = list(groups)
    for text, selector, usd in prices:
        at = [n for n, group in enumerate(found) if selector is None or any(map(selector.matches, group.runs))]
        if not at:
            labels = ", ".join(group.label for group in groups)
            raise UsageError(f"--price {text}", "it selects none of the runs", f"select one of: {labels}")
        for n in at:
            found[n] = replace(found[n], usd_per_hour=usd)
    return found


@cache
def _usd_per_hour(option: str, text: str) -> float:
    """US dollars per hour from ``3.06/h`` or ``3.06``, or the on-demand price of a named instance."""
    from levelbench.claims.hardware import lookup

    number = _PRICE.fullmatch(text)
    if number:
        usd = float(number[1])
    else:
        known = lookup(text)
        if known is None or known.price_per_hour is None:
            raise UsageError(
                f"--price {option}",
                f"{text!r} is neither a price nor an instance with a price in the table of hardware",
                "write dollars an hour, --price 3.06/h, or the exact name of an instance, --price p3.2xlarge",
            )
        click.echo(f"note: {text}: {known.price_per_hour:g} USD an hour ({known.price_source})", err=True)
        usd = known.price_per_hour
    if not (math.isfinite(usd) and usd > 0):
        raise UsageError(f"--price {option}", "it is not above zero", "write dollars an hour: --price 3.06/h")
    return usd


def statistics_options(command: Command) -> Command:
    """Options for the margin of SAME and the level of intervals."""
    level = click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level.")
    margin = click.option(
        "--margin",
        type=float,
        default=0.02,
        show_default=True,
        help="SAME means that the whole interval is this close to 1.",
    )
    return margin(level(command))


def until_clear_options(command: Command) -> Command:
    """``--until-clear`` for verbs whose ``-n`` counts processes."""
    for option in (
        effect_option,
        click.option("--budget", help="Time limit of --until-clear: 90, 2min.  [default: 10min]"),
        click.option(
            "--until-clear", is_flag=True, help="Add processes until the verdict is clear or --budget is used up."
        ),
    ):
        command = option(command)
    return command


def until_clear(given: dict[str, Any], counted: str, *, budget_of_a_run: bool = False) -> UntilClear | None:
    """What ``--until-clear`` asks for, ``None`` without it; ``counted`` is the parameter of ``-n``.

    Refuses options that contradict it, and ``--budget`` without it unless that is also the budget of a run.
    """
    from levelbench.experiments.kernel import CLEAR_WITHIN_S, UntilClear

    budget_s = None if given["budget"] is None else seconds("--budget", given["budget"])
    if not given["until_clear"]:
        for name in ("effect",) if budget_of_a_run else ("effect", "budget"):
            if given[name] is not None:
                raise UsageError(f"--{name} without --until-clear", "it has no effect", "add --until-clear")
        return None
    if click.get_current_context().get_parameter_source(counted) is not click.core.ParameterSource.DEFAULT:
        found = f"--until-clear itself decides the number of {counted}"
        raise UsageError(f"-n {given[counted]} with --until-clear", found, "leave -n out; --budget limits the time")
    effect = 0.05 if given["effect"] is None else given["effect"]
    if not (math.isfinite(effect) and effect > 0):
        raise UsageError(f"--effect {effect}", "it is not above zero", "give a share: 0.05 is 5 %")
    return UntilClear(effect, CLEAR_WITHIN_S if budget_s is None else budget_s)


def seconds(option: str, text: str, *, bare: bool = True) -> float:
    """Seconds from ``15ms``, ``2min`` or, if ``bare`` numbers are allowed as seconds, ``0.5``; above zero."""
    found = _TIME.fullmatch(text.strip())
    value = float(found[1]) * _UNITS[found[2] or "s"] if found else 0.0
    if not (math.isfinite(value) and value > 0):
        raise UsageError(
            f"{option} {text}",
            "impossible time: it must be a number above zero",
            f"write it like {option} 15ms or {option} 2s",
        )
    if found and not found[2] and not bare:
        number = text.strip()
        raise UsageError(f"{option} {text}", "it has no unit", f"write {option} {number}ms or {option} {number}s")
    return value


def need_two(until: UntilClear | None, arms: int) -> None:
    """Refuse ``--until-clear`` if there is nothing to compare."""
    if until is not None and arms < 2:
        raise UsageError(
            "--until-clear", f"there is {arms} thing to run, but a verdict compares two", "name at least two"
        )


def say_look(looked: Looked, counted: str, *, err: bool) -> None:
    """A line for the current state of each comparison."""
    from levelbench.report.numbers import duration
    from levelbench.report.tables import verdict_text

    left = f"{duration(looked.left_s)} left" if looked.left_s > 0 else "the budget is used up"
    begin = f"after {looked.count} {counted} each:"
    lines = [f"{begin} {label} {verdict_text(found)}, {left}" for label, found in looked.verdicts]
    with as_far_as_read(err=err):
        click.echo("\n".join(lines or [f"{begin} no verdict ({looked.why_none or 'it is withheld'})"]), err=err)


def is_default(name: str) -> bool:
    """Whether the option was not given."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.DEFAULT


def fail_on(default: str, *, looks: bool = False, target: bool = False) -> Callable[[Command], Command]:
    """The option ``--fail-on``: which outcomes end with an exit code other than 0.

    ``looks`` and ``target``: the verb has ``--until-clear`` and ``--target``, with outcomes of their own.
    """
    text = f"Outcomes with an exit code other than 0, separated by commas: {', '.join(_VERDICTS)}."
    shown = f"{default}, and unclear with --until-clear" if looks else default
    shown += ", missed with --target" if target else ""
    return click.option("--fail-on", default=default, help=f"{text}  [default: {shown}]")


def read_fail_on(text: str) -> frozenset[str]:
    """The outcomes in a comma-separated list; by default ``unclear`` is among them with ``--until-clear``."""
    words = frozenset(word.strip().lower() for word in text.split(",") if word.strip())
    for word in sorted(words - set(_VERDICTS)):
        raise UnknownNameError("outcome of --fail-on", word, _VERDICTS)
    # Whoever asks for a clear verdict did not get what was asked for.
    unclear = click.get_current_context().params.get("until_clear") and is_default("fail_on")
    return words - {"never"} | ({"unclear"} if unclear else set())


def code_until_clear(until: UntilClear | None, judged: tuple[Sequence[tuple[str, Verdict]], str]) -> int:
    """4 if ``until`` asked for clear verdicts and any of them is not, or there is none; else 0."""
    clear = bool(judged[0]) and all(verdict.kind.value != "UNCLEAR" for _, verdict in judged[0])
    return 0 if until is None or clear else _UNCLEAR


def check_statistics(margin: float, level: float) -> None:
    """Refuse an impossible margin or level."""
    if not 0 <= margin < 1:
        raise UsageError(f"--margin {margin:g}", "it is not a share", "give one from 0 to below 1: 0.02 is 2 per cent")
    if not 0.5 <= level < 1:
        raise UsageError(
            f"--level {level:g}", "it is not a confidence level", "give one from 0.5 to below 1, such as 0.95"
        )


def check_plot(path: Path | None) -> None:
    """Refuse a figure that could not be drawn (``MissingError``) or written, before anything runs."""
    if path is None:
        return
    from levelbench.report.drawing import check_ending
    from levelbench.report.run_figures import can_draw

    check_ending(path)
    if not can_draw():
        raise MissingError(f"--plot {path}", "matplotlib is not installed", 'pip install "levelbench[plot]"')
    check_writable(path)


def check_writable(*paths: Path | None) -> None:
    """Refuse a file that could not be written, before anything is measured: ``StoreError``, ``UsageError``."""
    import tempfile

    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise UsageError(f"write {path}", "it is a folder", "name a file in it")
        folder = next(each for each in path.absolute().parents if each.exists())
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            found = error.strerror or str(error)
            raise StoreError(f"write {path}", found, "choose a folder that is writable") from error


def open_store(path: Path) -> Store:
    """The store at ``path``, which need not exist yet."""
    from levelbench.records import Store

    store = Store(path)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.call_on_close(lambda: _say_left_out(store))
    return store


def _say_left_out(store: Store) -> None:
    count = len(store.left_out)
    if count:
        what = f"{count} trials" if count > 1 else "1 trial"
        with as_far_as_read(err=True):
            why = "the fastest of many is partly luck"
            click.echo(f"note: {what} of tuning left out (an id still selects one): {why}", err=True)


def apply_view(runs: list[RunSummary], store: Store, **view: Any) -> list[RunSummary]:
    """The same runs under another clock, crossing rule or threshold; unchanged if none is given."""
    wanted = {name: value for name, value in view.items() if value is not None}
    if not wanted:
        return runs
    from levelbench.records import read_record, summarise

    return [summarise(read_record(Path(run.path)), **wanted) for run in runs]


def each_run(store: Store, words: tuple[str, ...] | list[str]) -> Iterator[RunSummary]:
    """Iterate over the runs that the words select, each once; an error if a word selects none."""
    from levelbench.records import summarise
    from levelbench.records.store import distinct

    return map(summarise, distinct(record for word in words for record in store.each_found(word)))


def select_runs(store: Store, words: tuple[str, ...] | list[str]) -> list[RunSummary]:
    """The same as a list, oldest first, without trials (:meth:`Store.each_counted`)."""
    from levelbench.records import summarise
    from levelbench.records.store import distinct

    counted = distinct(record for word in words for record in store.each_counted(word))
    return sorted(map(summarise, counted), key=lambda run: run.started)


def selected_groups(store: Store, words: tuple[str, ...], **view: Any) -> list[RunGroup]:
    """The groups of the selected runs under a view, which know of runs of their kinds that were not selected."""
    from levelbench.records import group_runs

    groups = group_runs(apply_view(readable_runs(store, words), store, **view))
    return store.with_unselected(groups) if words else groups


def as_named(groups: Sequence[RunGroup], store: Store, words: tuple[str, ...]) -> list[RunGroup]:
    """The groups in the order of the words that select them, so that the first word names the baseline.

    Groups of one word, or without words, are in the order of measurement (:func:`records.summary.in_order`).
    """
    from levelbench.records.summary import in_order

    place: dict[str, int] = {}
    for at, word in enumerate(words if len(words) > 1 else ()):
        for record in store.each_found(word):
            place.setdefault(record.header.id, at)

    def named(group: RunGroup) -> int:
        return min(place.get(run.id, 0) for run in (*group.runs, *group.unfinished))

    return sorted(in_order(groups), key=named)


def readable_runs(store: Store, words: tuple[str, ...]) -> list[RunSummary]:
    """The runs that the words select, or all in the store, oldest first.

    Raises the reason why a record that may be one of them cannot be read: leaving it out would silently change results.
    """
    found = select_runs(store, words) if words else sorted(store.summaries(), key=lambda run: run.started)
    if not words and store.problems:
        raise store.problems[0]
    for word in words:
        for _ in store.each_found(word):
            pass
        store.require_readable(word)
    return found


def error_parts(error: LevelbenchError) -> dict[str, Any]:
    """An error for JSON."""
    return {"asked": error.asked, "found": error.found, "do": error.do, "exit_code": error.exit_code}


def say_error(error: LevelbenchError, debug: bool) -> None:
    """Print the three parts on standard error, with ``debug`` after the traceback."""
    if debug:
        click.echo(visible(error.trace or "".join(traceback.format_exception(error))), err=True)
    click.echo(visible(f"error: {error.asked}\nfound: {error.found}\n   do: {error.do}"), err=True)


def visible(text: str) -> str:
    """``text`` with control and unprintable characters escaped: names and servers may contain anything."""
    return "".join(_escaped(each) if unicodedata.category(each) in _UNSEEN else each for each in text)


def _escaped(character: str) -> str:
    return character if character in "\n\t" else character.encode("unicode_escape").decode("ascii")


@contextmanager
def as_far_as_read(err: bool = False) -> Iterator[None]:
    """Ignore a closed pipe while printing: a reader that stops reading must not end a measurement."""
    try:
        yield
    except BrokenPipeError:
        mute(err)


def mute(err: bool = False) -> None:
    """Print nothing more on standard output or error: the reader is gone, and the flush at exit would fail."""
    if err:
        sys.stderr = None
    else:
        sys.stdout = None


def emit_json(value: Any) -> None:
    """Print JSON; not-a-number becomes null, since JSON has none."""
    click.echo(json_text(value))


def emit_json_list(values: Iterable[Any]) -> None:
    """Print a JSON list like :func:`emit_json`, but in parts, so that only one part at a time is in memory as text."""
    begun, rest = False, iter(values)
    while part := list(islice(rest, _PART)):
        text = ",\n".join("  " + json_text(value).replace("\n", "\n  ") for value in part)
        click.echo(f"{',' if begun else '['}\n{text}", nl=False)
        begun = True
    click.echo("\n]" if begun else "[]")


def json_text(value: Any) -> str:
    """Indented JSON; not-a-number becomes null."""
    import msgspec

    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        # A file's name need not be UTF-8, but JSON is.
        encoded = msgspec.json.encode(_in_utf_8(msgspec.to_builtins(value, str_keys=True)))
    return json.dumps(json.loads(encoded), indent=2, ensure_ascii=False)


def _in_utf_8(value: Any) -> Any:
    """Plain data with surrogates in texts escaped."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_in_utf_8(key): _in_utf_8(each) for key, each in value.items()}
    return [_in_utf_8(each) for each in value] if isinstance(value, list | tuple) else value


def printing_options(command: Command) -> Command:
    """``--wide``, ``--columns`` and ``--no-color`` for what :func:`say` and :func:`print_tables` print."""
    for option in (
        no_color_option,
        click.option(
            "--columns",
            type=click.IntRange(min=40),
            expose_value=False,
            callback=_chosen(_COLUMNS),
            help="Fit tables and lines to this width instead of the terminal's.",
        ),
        click.option(
            "--wide",
            is_flag=True,
            expose_value=False,
            callback=_chosen(_WIDE),
            help="Do not fit tables and lines to the width of the terminal.",
        ),
    ):
        command = option(command)
    return command


def table_options(command: Command) -> Command:
    """``--csv`` and ``--markdown`` for :func:`write_tables`, and :func:`printing_options`."""
    command = printing_options(command)
    for option in (
        click.option(
            "--markdown",
            "markdown_path",
            type=click.Path(path_type=Path),
            help="Write everything as Markdown to this file.",
        ),
        click.option(
            "--csv", "csv_path", type=click.Path(path_type=Path), help="Write the tables as CSV to this file."
        ),
    ):
        command = option(command)
    return command


def write_tables(
    given: dict[str, Any],
    tables: Sequence[Table],
    lines: Iterable[str] = (),
    *,
    title: str = "",
    csv: Mapping[str, Table] | None = None,
) -> dict[str, str]:
    """Write the files that ``--csv`` and ``--markdown`` request; returns the paths by name.

    Markdown has the tables, then the lines as a list. ``csv`` (by default ``tables`` by their names) has the tables to
    write as CSV: the first one to the path of ``--csv``, others that have rows next to it, with their names appended to
    its name.
    """
    if given["csv_path"] is None and given["markdown_path"] is None:
        return {}
    from levelbench.report.drawing import write_whole
    from levelbench.report.tables import markdown_text, to_csv, to_markdown

    written = {}
    if (path := given["csv_path"]) is not None:
        (_, first), *others = ({each.name: each for each in tables} if csv is None else csv).items()
        written["csv"] = str(write_whole(path, to_csv(first)))
        for name, table in others:
            if table.rows:
                beside = path.with_name(f"{path.stem}-{name}{path.suffix}")
                written[f"csv_of_{name}"] = str(write_whole(beside, to_csv(table)))
    if given["markdown_path"] is not None:
        parts = [f"# {title}\n"] if title else []
        parts += map(to_markdown, tables)
        said = "".join(f"- {markdown_text(line.strip())}\n" for line in lines if line)
        parts += [said] if said else []
        written["markdown"] = str(write_whole(given["markdown_path"], "\n".join(parts)))
    return written


ShortForm = tuple[Sequence[str], "Sequence[Table]", Mapping[str, str]]
"""A shorter answer, its tables, and shorter words for lines below them."""


def present(
    tables: Sequence[Table],
    lines: Iterable[str],
    view: Callable[[], dict[str, Any]],
    write: Callable[[], dict[str, str]],
    *,
    answer: Sequence[str] = (),
    as_json: bool,
    apart: bool = True,
    shorter: Callable[[int], Sequence[ShortForm]] = lambda width: (),
) -> None:
    """Print the answer, tables and lines, or ``view`` as JSON, with the paths that ``write`` returns.

    Files are written after printing, so that a figure that cannot be drawn loses nothing. ``apart`` prints an empty
    line before the first table. In a terminal that this would leave, doubts are shortened; then the first answer and
    tables of ``shorter``, for a width, are printed that do fit, with lines in the words that they have there.
    """
    if as_json:
        # A reader of only part of it, such as `head`, still gets the exit code of the whole.
        with as_far_as_read():
            emit_json({**view(), **write()})
        return
    with as_far_as_read():
        if apart:
            click.echo()
        said = list(lines)
        console = _console()
        forms = list(shorter(console.width)) if console.is_terminal else []
        if console.is_terminal and (forms or any("doubt: " in each for each in said)):
            whole = _shown(answer, tables, [*[""] * bool(said), *said])
            tries: list[tuple[Sequence[str], Sequence[Table], list[str]]] = []
            for head, laid, words in [(answer, tables, {}), *forms]:
                brief = _once(_shortened(words.get(each, each)) for each in said)
                bare = [each for each in brief if not each.startswith("  note: ")]
                tries += [(head, laid, brief), (head, laid, bare)]
            tries.append((head, laid, _counted(bare)))
            for said_first, shown, below in tries:
                if whole.count("\n") <= console.size.height - _BELOW:
                    break
                whole = _shown(said_first, list(map(_unexplained, shown)), [*below, _SHORTENED])
            click.echo(whole, nl=False, color=True)
        else:
            say(*answer, *[""] * bool(answer))
            print_tables(*tables)
            say(*[""] * bool(said), *said)
    written = write()
    with as_far_as_read():
        for name, path in written.items():
            click.echo(f"{name.replace('_', ' ')}: {path}")


_BELOW = 2
"""Lines of a terminal that its prompt and the name of the report take."""
_SHORTENED = "  (shortened to fit the terminal: --wide has doubts and notes in full)"
_NAMES = re.compile(r"\S*\[[^\]]*\]|\d[\d.,]*")
_RUNS = re.compile(r"(\d+) of (\d+) (runs|processes) of ")
_OTHER_ARMS = re.compile(r"(?:, | and )of (?:(\d+) others(?:, and )?$)?")


def _shown(answer: Sequence[str], tables: Sequence[Table], lines: Sequence[str]) -> str:
    """What these print, with the terminal's colours."""
    console = _console()
    with console.capture() as captured:
        # A table without a title begins with an empty line.
        _say(console, *answer, *[""] * bool(answer and tables and tables[0].title))
        _print(console, tables)
        _say(console, *lines)
    return captured.get()


def _unexplained(table: Table) -> Table:
    """Without the columns that have no value, and why they have none."""
    from levelbench.report.numbers import ABSENT

    table = table.without_absent()
    return replace(table, notes=tuple(note for note in table.notes if not note.startswith(f"{ABSENT} ")))


def _shortened(line: str) -> str:
    """A doubt as how many runs it is about and what was seen, without their names and what to do."""
    who, _, rest = line.strip().removeprefix("doubt: ").partition(": ")
    # What precedes the first count, then three groups and the names of the arms of each.
    _, *parts = _RUNS.split(f"{who} of " if "doubt: " in line else "")
    found, _, do = rest.partition(": ")
    if "doubt: " not in line or not parts or not do:
        return line
    arms = [
        1 + sum(int(others or 1) for others in _OTHER_ARMS.findall(each.removesuffix(" of "))) for each in parts[3::4]
    ]
    of = [sum(int(each) * many for each, many in zip(parts[at::4], arms, strict=True)) for at in (0, 1)]
    return f"  doubt: {of[0]} of {of[1]} {parts[2]}: {found}"


def _counted(lines: Sequence[str]) -> list[str]:
    """The first doubt, and the number of the others; all else stays."""
    doubts = [line for line in lines if line.lstrip().startswith("doubt: ")]
    if len(doubts) < 2:
        return list(lines)
    first = f"{doubts[0]} (and {len(doubts) - 1} more doubt{'s' * (len(doubts) > 2)})"
    return [first if line == doubts[0] else line for line in lines if line not in doubts[1:]]


def _once(lines: Iterable[str]) -> list[str]:
    """The lines; of those that differ only in names and numbers, the first, and how many more there are."""
    alike: dict[str, list[str]] = {}
    for line in dict.fromkeys(lines):
        alike.setdefault(_NAMES.sub("#", line), []).append(line)
    return [f"{first} (and {len(rest)} more like it)" if rest else first for first, *rest in alike.values()]


_WIDE, _COLUMNS, _NO_COLOUR = "levelbench.wide", "levelbench.columns", "levelbench.no_color"
_COLOURS = {"FASTER:": "bold green", "SLOWER:": "bold red", "SAME:": "bold cyan", "UNCLEAR:": "bold yellow"}
_COLOURS |= {"doubt:": "yellow", "refuse:": "red"}


def _chosen(name: str) -> Callable[[click.Context, click.Parameter, int | None], None]:
    """Remembers a flag or a number for everything that the verb prints."""

    def note(context: click.Context, parameter: click.Parameter, given: int | None) -> None:
        if given:
            context.meta[name] = given
        if {_WIDE, _COLUMNS} <= context.meta.keys():
            raise UsageError("--wide with --columns", "these are two widths", "leave out one of them")

    return note


no_color_option = click.option(
    "--no-color", is_flag=True, expose_value=False, callback=_chosen(_NO_COLOUR), help="Print without colour."
)


def _console() -> Console:
    """A console with the terminal's width and colours, subject to the options for printing and ``NO_COLOR``."""
    from rich.console import Console

    class Raising(Console):
        """Rich would end the program with code 1; the command decides what a closed pipe means."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    context = click.get_current_context(silent=True)
    chosen = {} if context is None else context.meta
    width = 100_000 if _WIDE in chosen else chosen.get(_COLUMNS)
    return Raising(highlight=False, no_color=True if _NO_COLOUR in chosen else None, width=width)


def say(*lines: str) -> None:
    """Print lines; on a terminal, or with ``--columns``, wrap them between words; colour verdicts and doubts."""
    _say(_console(), *lines)


def _say(console: Console, *lines: str) -> None:
    from rich.text import Text

    context = click.get_current_context(silent=True)
    wrapped = console.is_terminal or (context is not None and _COLUMNS in context.meta)
    for line in lines:
        text = visible(line)
        if wrapped:
            indent = " " * (len(text) - len(text.lstrip()))
            text = "\n".join(_wrapped(text.lstrip(), console.width, indent))
        styled = Text(text)
        head = text.split(maxsplit=1)[:1]
        if head and head[0] in _COLOURS:
            at = text.index(head[0])
            styled.stylize(_COLOURS[head[0]], at, at + len(head[0]) - 1)
        console.print(styled, soft_wrap=True)


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    """``text`` in lines; a longer name is broken where a table would break it."""
    from levelbench.report.tables import cell_width, fold_text

    after = f"{indent}  "
    lines = textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=after, break_long_words=False, break_on_hyphens=False
    )
    return [
        part
        for line in lines
        for part in (
            [line]
            if cell_width(line) <= width
            else [after + each for each in fold_text(line.strip(), width - len(after))]
        )
    ]


def print_tables(*tables: Table) -> None:
    """Print tables, fitted to the terminal; otherwise as plain lines."""
    _print(_console(), tables)


def _print(console: Console, tables: Sequence[Table]) -> None:
    from levelbench.report.tables import print_table

    for at, table in enumerate(tables):
        if at:
            console.print()
        print_table(table, console)


def team_options(command: Command) -> Command:
    """The options for scheme, engine and communicator, without the number of ranks."""
    for option in (
        click.option(
            "--timeout",
            type=click.FloatRange(min=1),
            default=300.0,
            show_default=True,
            help="Seconds until a rank that does not answer counts as lost.",
        ),
        click.option(
            "--lr-scale", help="Weak scaling: how the learning rate grows with the workers: none, linear, sqrt."
        ),
        click.option("--scaling", help="strong: the global batch stays the same; weak: each worker's batch does."),
        click.option("--communicator", help="Communicator of the ranks: gloo, mpi, nccl; default: the engine's own."),
        click.option(
            "--engine",
            help="Engine that starts the ranks: process, torchrun, mpi, slurm, 'hosts[rate=100mbit,delay=5ms]', ...",
        ),
        click.option(
            "--scheme", help="Scheme of distributed training: all-reduce, 'top-k[ratio=0.01]', FILE.py:NAME, ..."
        ),
    ):
        command = option(command)
    return command


_STARTED_BY = {
    "TORCHELASTIC_RUN_ID": ("torchrun", "RANK", "WORLD_SIZE"),
    "OMPI_COMM_WORLD_SIZE": ("mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "PMI_SIZE": ("mpi", "PMI_RANK", "PMI_SIZE"),
    "SLURM_STEP_NUM_TASKS": ("slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
}
"""What only a launcher's ranks have (SLURM's others are in batch scripts, too), its engine here, rank and size."""


def refuse_in_ranks(command: str, given: str | None) -> None:
    """``UsageError`` for a command that starts ranks itself, and was started once for each rank by a launcher.

    ``given``: its engine; that of torchrun is started once on each node.
    """
    for mark, (engine, rank, size) in _STARTED_BY.items():
        number = os.environ.get(size, "")
        if mark in os.environ and number.isdecimal() and 1 < int(number) != _nodes_of(given):
            launcher = {"mpi": "an MPI launcher", "slurm": "srun"}.get(engine, engine)
            found = f"{launcher} started it once for each rank"
            do = f"start it once: {command} ... --ranks {number} --engine {engine}"
            raise UsageError(f"{command} as rank {os.environ.get(rank, '?')} of {number}", found, do)


def _nodes_of(engine: str | None) -> int:
    """On how many nodes the command is started for this engine."""
    from levelbench.distributed.launching.launchers import nodes_of
    from levelbench.records import parse_item

    name, options = parse_item(engine or "process")
    return nodes_of(options, os.environ) if name == "torchrun" else 1


def team(given: dict[str, Any], ranks: int | None) -> TeamOptions:
    """The team that the options describe."""
    from levelbench.experiments.request import TeamOptions

    return TeamOptions(
        ranks, given["scheme"], given["engine"], given["communicator"], given["scaling"], given["lr_scale"]
    )


_OF_TEAMS = ("ranks", "scheme", "engine", "communicator", "scaling", "lr_scale")
_IN_BRACKETS = ("recipe", "framework", "device", "target", *_OF_TEAMS)
"""Options that the brackets of a task may set, too; the brackets win."""


def refuse_overruled(parsed: Sequence[tuple[str, Mapping[str, Any]]], given: Mapping[str, Any]) -> None:
    """Refuse an option that has no effect, since the brackets of all tasks say something else.

    ``parsed`` is each task with what its brackets set.
    """
    context = click.get_current_context(silent=True)
    for name in _IN_BRACKETS:
        own = [settings.get(name) for _, settings in parsed]
        defaulted = context is not None and context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT
        if given.get(name) is None or defaulted or None in own:
            continue
        if any(str(each) != str(given[name]) for each in own):
            found = f"{'the task names its' if len(own) == 1 else 'all tasks name their'} own in brackets: {own[0]}"
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} {given[name]}", found, f"leave out {option}, or the setting in the brackets")
    # This one wins over the brackets, whose setting would stay in the run's name.
    epochs = given.get("epochs")
    for reference, settings in parsed:
        if epochs is not None and "epochs" in settings and float(settings["epochs"]) != float(epochs):
            found = f"{reference} has epochs={settings['epochs']} in brackets"
            raise UsageError(f"--epochs {epochs:g}", found, "leave out --epochs, or the setting in the brackets")


def listed_schemes(text: str | None) -> list[str | None]:
    """The schemes in a list separated by commas; commas inside brackets do not separate."""
    if text is None:
        return [None]
    words = [word.strip() for word in re.split(r",(?![^\[]*\])", text)]
    if not all(words):
        raise UsageError(f"--scheme {text!r}", "it names no scheme", "give one scheme, or several separated by commas")
    return list(words)
