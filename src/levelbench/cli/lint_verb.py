"""``levelbench lint``: which of the twelve ways to fool the masses a claim uses, with evidence and remedy."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import LevelbenchError, UnknownNameError, UsageError
from levelbench.report.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelbench.claims.lint import Linted, LintReport, Settings
    from levelbench.claims.rule import Diagnostic, Rule, Severity
    from levelbench.claims.view import Claim
    from levelbench.records import Store

__all__ = ["command", "report_lines", "rule_lines"]

_SEVERITIES = ("error", "warning", "not-stated")
_SETTINGS = ("pyproject.toml", "lint.toml")
_QUESTIONS = 3
"""Questions that are printed with the findings of one claim; the others are counted."""
_FORMATS = ("text", "json", "sarif", "github")


@click.command("lint")
@click.argument("what", nargs=-1, metavar="RUNS|FILE|DIR...")
@click.option(
    "--select",
    multiple=True,
    metavar="CODES",
    help="Check only these rules, separated by commas: LB107, LB2 or a name.",
)
@click.option(
    "--ignore", multiple=True, metavar="CODE=REASON", help="Ignore a rule's findings, CODE=REASON; the reason is shown."
)
@click.option(
    "--show", type=click.Choice(_SEVERITIES), help="Print findings of this severity and worse. [default: warning]"
)
@click.option(
    "--fail-on",
    type=click.Choice([*_SEVERITIES, "never"]),
    help="Exit with 1 on a finding of this severity or worse. [default: warning]",
)
@click.option("--format", "layout", type=click.Choice(_FORMATS), default="text", show_default=True)
@click.option(
    "--config", type=click.Path(path_type=Path), help="File of settings, instead of lint.toml or pyproject.toml here."
)
@click.option("--explain", metavar="CODE", help="Print the page of a rule, by code or name; all for every rule.")
@click.option("--rules", "list_rules", is_flag=True, help="List the rules.")
@click.option(
    "--template",
    is_flag=False,
    flag_value="toml",
    type=click.Choice(["toml", "page", "markdown"]),
    help="Print a claim to fill in before publishing, its main fields on one page, or a reviewer's checklist.",
)
@click.option(
    "--propose",
    "propose_folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write what the tables of a page state (Markdown, HTML, CSV) as claim files to complete, with quotations.",
)
@click.option("--docs", "docs_folder", type=click.Path(path_type=Path, file_okay=False), hidden=True)
@shared.store_option
@shared.answer_options
def command(
    what: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    show: Severity | None,
    fail_on: str | None,
    layout: str,
    config: Path | None,
    explain: str | None,
    list_rules: bool,
    template: str | None,
    propose_folder: Path | None,
    docs_folder: Path | None,
    store_path: Path,
    as_json: bool,
) -> int:
    """Check a performance claim against the rules: runs, a submission, an MLPerf log, a claim file, a published table.

    \b
      levelbench lint digits
      levelbench lint README.md --propose claims
      levelbench lint leaderboard/ --fail-on error
      levelbench lint --template > claim.toml
      levelbench lint claim.toml --ignore 'LB107=the vendor counted, see its note 4'
      levelbench lint --explain LB107

    Errors mislead as they stand, warnings probably do; missing facts are counted, but are never held against the
    author. Exits with 1 if there is an error, a warning or a comparison that is refused, else with 4 if a file could
    not be read. Settings are read from lint.toml or [tool.levelbench.lint] in pyproject.toml here.
    """
    layout = "json" if as_json else layout
    if docs_folder is not None:
        return _write_docs(docs_folder)
    if template is not None:
        return _print(_template(template))
    if explain is not None:
        return _explain(explain, layout)
    if list_rules:
        return _list(layout)
    if not what:
        do = "give runs, a file or a folder; levelbench lint --template writes a claim to fill in"
        raise UsageError("levelbench lint", "it names nothing to check", do)
    if propose_folder is not None:
        return _propose(what, propose_folder)
    settings = _settings(config)
    least, failing = _severities(show or settings.show, fail_on or settings.fail_on)
    report = _report(what, select or settings.select, {**settings.ignore}, ignore, store_path)
    code = 1 if report.fails(failing) else 4 if report.unread else 0
    _emit(report, least, layout, code)
    return code


def _settings(config: Path | None) -> Settings:
    from levelbench.claims.lint import find_settings, read_settings

    return find_settings(Path.cwd()) if config is None else read_settings(config)


def _severities(show: str | None, fail_on: str | None) -> tuple[Severity, Severity | None]:
    """What is printed, and what fails; by default everything that fails is printed."""
    for name, value, known in (("--show", show, _SEVERITIES), ("--fail-on", fail_on, (*_SEVERITIES, "never"))):
        if value is not None and value not in known:
            raise UnknownNameError(f"severity of {name}", value, known)
    order: list[Any] = list(_SEVERITIES)
    failing = fail_on or "warning"
    least = show or max("warning", "warning" if failing == "never" else failing, key=order.index)
    return order[order.index(least)], None if failing == "never" else order[order.index(failing)]


def _report(
    what: tuple[str, ...], select: tuple[str, ...], kept: dict[str, str], ignore: tuple[str, ...], store_path: Path
) -> LintReport:
    from levelbench.claims.lint import checked_reason, chosen_rules, find_rule, lint, read_ignore

    rules = chosen_rules(select)
    reasons = {rule.code: checked_reason(rule.code, text) for name, text in kept.items() if (rule := find_rule(name))}
    reasons |= read_ignore(ignore)
    store = shared.open_store(store_path)
    problems: list[LevelbenchError] = []
    # As in *.toml, which lists them, files of settings are passed over.
    several = [each for each in what if Path(each).name not in _SETTINGS]
    if not several:
        do = "give files of claims; levelbench lint --template writes one to fill in"
        raise UsageError(f"levelbench lint {what[0]}", "it has settings, and no claim", do)
    claims = _of_several(several, store, problems) if len(several) > 1 else _of_one(several[0], store, problems)
    report = lint(claims, rules, reasons)
    return replace(report, unread=tuple(str(each) for each in problems))


def _of_one(name: str, store: Store, problems: list[LevelbenchError]) -> Iterator[tuple[str, Claim]]:
    from levelbench.claims.reading import read

    return ((name, claim) for claim in read(name, store, problems))


def _of_several(names: list[str], store: Store, problems: list[LevelbenchError]) -> Iterator[tuple[str, Claim]]:
    """The claims in each, as a shell or a hook lists files: one that cannot be read does not hide the others.

    A page without figures is passed over, unless all of them are; a name that is no file is still an error.
    """
    from levelbench.claims.reading import NothingStatedError

    passed: list[NothingStatedError] = []
    for name in names:
        try:
            yield from _of_one(name, store, problems)
        except NothingStatedError as error:
            passed.append(error)
            if len(passed) == len(names):
                raise
            click.echo(shared.visible(f"passed over {name}: {error.found}"), err=True)
        except LevelbenchError as error:
            if not Path(name).exists():
                raise
            problems.append(error)


def _emit(report: LintReport, show: Severity, layout: str, code: int) -> None:
    for each in report.unread if layout == "text" else ():
        click.echo(shared.visible(f"unreadable: {each}"), err=True)
    if layout == "json":
        from levelbench.claims.formats import as_json

        return shared.emit_json({**as_json(report, show), "exit_code": code})
    if layout == "sarif":
        from levelbench.claims.formats import as_sarif

        return shared.emit_json(as_sarif(report, show))
    if layout == "github":
        from levelbench.claims.formats import github_lines

        lines = github_lines(report, show)
    else:
        lines = report_lines(report, show)
    with shared.as_far_as_read():
        if layout == "github":
            for line in lines:
                click.echo(shared.visible(line))
        else:
            shared.say(*lines)
    return None


def _explain(word: str, layout: str) -> int:
    from levelbench.claims.formats import rule_json
    from levelbench.claims.lint import find_rule
    from levelbench.claims.pages import rule_text
    from levelbench.claims.rules import all_rules

    rules = all_rules() if word == "all" else (find_rule(word),)
    if layout == "json":
        shared.emit_json({"rules": [rule_json(rule) for rule in rules]})
        return 0
    return _print("\n".join(rule_text(rule) for rule in rules))


def _list(layout: str) -> int:
    from levelbench.claims.formats import rule_json
    from levelbench.claims.rules import all_rules

    if layout == "json":
        shared.emit_json({"rules": [rule_json(rule) for rule in all_rules()]})
        return 0
    return _print("\n".join(rule_lines(all_rules())))


def _template(kind: str) -> str:
    from levelbench.claims.pages import checklist
    from levelbench.claims.reading.template import one_page, template

    return {"toml": template, "page": one_page, "markdown": checklist}[kind]()


def _propose(what: tuple[str, ...], folder: Path) -> int:
    """One claim file for each table with figures, none in place of another."""
    from levelbench.claims.reading import PAGES, NothingStatedError
    from levelbench.claims.reading.published import propose
    from levelbench.report.drawing import write_whole

    texts: dict[Path, str] = {}
    unread: dict[Path, NothingStatedError] = {}
    proposed = Counter[str]()
    for each in map(Path, what):
        if not each.is_file() or each.suffix.lower() not in PAGES:
            found = "there is no such file" if not each.exists() else f"it is none of {', '.join(PAGES)}"
            raise UsageError(f"levelbench lint {each} --propose", found, "give a page with tables of results")
        try:
            for made in propose(each):
                # Pages of one name in two folders are numbered on.
                proposed[each.stem] += 1
                texts[folder / f"{each.stem}-{proposed[each.stem]}.toml"] = made.toml()
        except NothingStatedError as error:
            unread[each] = error
    if not texts:
        raise next(iter(unread.values()))
    for path in texts:
        if path.exists():
            raise UsageError(f"--propose {folder}", f"{path} is there already", "give another folder, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{write_whole(path, text)}: complete it, then lint it" for path, text in texts.items()]
    return _print("\n".join([*lines, *(f"{page}: {error.found}" for page, error in unread.items())]))


def _write_docs(folder: Path) -> int:
    from levelbench.claims.pages import all_pages
    from levelbench.report.drawing import write_whole

    lint_page = folder / "lint.md"
    if not lint_page.is_file():
        raise UsageError(f"--docs {folder}", "it has no lint.md for the table", "give the folder docs/reference")
    pages = all_pages(lint_page.read_text(encoding="utf-8"))
    for stale in sorted(set((folder / "rules").glob("LB*.md")) - {folder / name for name in pages}):
        stale.unlink()
    return _print("\n".join(str(write_whole(folder / name, text)) for name, text in pages.items()))


def _print(text: str) -> int:
    with shared.as_far_as_read():
        click.echo(text.rstrip("\n"))
    return 0


def report_lines(report: LintReport, show: Severity) -> list[str]:
    """The whole report: claims with findings, what was ignored and why, and the summary."""
    lines: list[str] = []
    for linted in report.linted:
        found, caveats = linted.shown(show), linted.claim.caveats
        questions = _first_questions(linted) if show == "warning" and len(report.linted) == 1 else []
        if found or caveats or questions:
            lines += [_title(linted), *(f"  {each}" for each in caveats)]
            lines += [*(line for each in found for line in _finding(report, each, linted)), *questions, ""]
    lines += [*_by_rule(report, show), *_ignored_lines(report)]
    # A line break in a title must not look like a line of the report.
    return [line.replace("\n", " ") for line in [*lines, _summary(report, show)]]


def _first_questions(linted: Linted) -> list[str]:
    """What to ask first about a claim that is read alone."""
    questions = [each for each in linted.findings if each.severity == "not-stated"]
    return [line for each in questions[:_QUESTIONS] for line in _folded(f"  ask {each.code}: ", _asked(each))]


def _asked(finding: Diagnostic) -> str:
    return finding.found.removeprefix("not stated: ")


def rule_lines(rules: tuple[Rule, ...]) -> list[str]:
    """The rules as a table in plain text."""
    width = max((len(rule.name) for rule in rules), default=0)
    about = max((len(rule.about) for rule in rules), default=0)
    return [f"{rule.code}  {rule.name:<{width}}  {rule.about:<{about}}  {rule.why}" for rule in rules]


def _title(linted: Linted) -> str:
    title, place = linted.claim.title, linted.claim.where or linted.source
    return title if place in title else f"{title} ({place})"


def _finding(report: LintReport, finding: Diagnostic, linted: Linted) -> list[str]:
    from levelbench.claims.formats import place_of

    rule = report.rule(finding.code)
    place = str(place_of(finding, linted)) or finding.where
    seen = ", ".join(each for each in (place, finding.field) if each)
    lines = [f"  {finding.severity} {finding.code} {rule.name}{f' at {seen}' if seen else ''}"]
    if finding.where and finding.where.rsplit(":", 1)[0] not in place:
        lines.append(f"     in: {finding.where}")
    for name, text in (("found", finding.found), ("why", rule.why), ("do", finding.do)):
        lines += _folded(f"  {name:>5}: ", text)
    return lines


def _folded(head: str, text: str) -> list[str]:
    """Wrapped to the width of a terminal; one line otherwise, for other programs to read."""
    if not sys.stdout.isatty():
        return [head + text]
    width = max(60, min(110, shutil.get_terminal_size().columns))
    return textwrap.wrap(
        text, width, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
    ) or [head]


def _by_rule(report: LintReport, show: Severity) -> list[str]:
    """For several claims: how often each rule found something, most frequent first."""
    counts = Counter(each.code for linted in report.linted for each in linted.shown(show))
    if len(report.linted) < 2 or not counts:
        return []
    return ["by rule", *(f"  {count:>6,} {code} {report.rule(code).name}" for code, count in counts.most_common()), ""]


def _ignored_lines(report: LintReport) -> list[str]:
    if not report.ignored:
        return []
    suppressed = report.suppressed()
    lines = ["ignored"]
    for code, reason in sorted(report.ignored.items()):
        count = sum(each.finding.code == code for each in suppressed)
        lines.append(f"  {code}: {plural(count, 'finding')}, because: {reason}")
    return [*lines, ""]


def _summary(report: LintReport, show: Severity) -> str:
    counts = report.counts()
    found = [plural(counts["error"], "error"), plural(counts["warning"], "warning")]
    text = plural(len(report.linted), "claim")
    if len(report.linted) == 1:
        text = f"{_title(report.linted[0])}: {text}"
    text += f" checked against {plural(len(report.rules), 'rule')}"
    text += f": {', '.join(found)}"
    if refusals := report.refusals():
        text += f", {plural(refusals, 'refusal')}"
    if unsaid := counts["not-stated"]:
        text += f", {unsaid} not stated"
        all_ = " all" if show == "warning" and len(report.linted) == 1 and unsaid > _QUESTIONS else ""
        text += "" if show == "not-stated" else f" (--show not-stated lists them{all_})"
    if suppressed := len(report.suppressed()):
        text += f", {suppressed} ignored"
    if report.unread:
        text += f", {plural(len(report.unread), 'file')} not read"
    return text
