"""What the site's pages share: the frame of a page, badges, lists, tables, links, style sheet and scripts.

``fill`` puts values into a template of ours and escapes each that is not :class:`Html` already, in text and in
attributes alike, so that nothing of an entry becomes markup by being forgotten. Shared files are named after their
content, so a page of another version never meets a script that it does not know.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import LiteralString

from levelbench.competition.site import EntryPayload, OriginFacts, RulesetFacts, safe_url
from levelbench.records.schema import Target
from levelbench.report.markup import DARK, LIGHT, PHASES, SERIES, Html, style_sheet, variables
from levelbench.report.numbers import ABSENT, plural
from levelbench.report.tables import clean

_SCRIPTS = ("dom.js", "ranking.js", "data.js", "view.js", "table.js", "controls.js", "curves.js", "main.js")


@cache
def _named() -> dict[str, tuple[str, bytes]]:
    """Each file's own name, with the name that it gets and its content."""
    folder = files("levelbench.competition.site") / "assets"
    own = (folder / "board.css").read_text("utf-8")
    # The two schemes again, for those who chose one of them against their system's; never on paper.
    chosen = "".join(
        f":root[data-theme={name}]{{color-scheme:{name};{variables(base, which)}}}"
        for name, base, which in (("light", LIGHT, 0), ("dark", DARK, 1))
    )
    # A class for each series and phase: an attribute with a style would be against the page's policy.
    series = "".join(f".s{at}{{stroke:var(--series-{at})}}" for at in range(len(SERIES)))
    series += "".join(f".p-{name}{{fill:var(--phase-{name})}}" for name in PHASES)
    contents = {
        "board.css": f"{style_sheet()}\n@media screen{{{chosen}}}\n{series}\n{own}".encode(),
        "board.js": b"".join((folder / name).read_bytes() for name in _SCRIPTS),
        "theme.js": (folder / "theme.js").read_bytes(),
        "icon.svg": (folder / "icon.svg").read_bytes(),
    }
    named = {}
    for name, content in contents.items():
        stem, _, ending = name.partition(".")
        named[name] = (f"{stem}-{hashlib.sha256(content).hexdigest()[:10]}.{ending}", content)
    return named


def assets() -> dict[str, bytes]:
    """The files of ``assets/`` by the names that they get."""
    return dict(_named().values())


def asset(name: str) -> str:
    """Where the file is, relative to the site's root: ``board.js`` is in ``assets/board-3f2a91c45e.js``."""
    return f"assets/{_named()[name][0]}"


TITLES = {
    "time": "Time to accuracy",
    "cost": "Cost of training",
    "latency": "Latency",
    "throughput": "Throughput",
    "inference_cost": "Cost of a million answers",
}
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"
_METRICS = {"top1": "top-1 accuracy", "top5": "top-5 accuracy", "f1": "F1", "bleu": "BLEU"}
_NONE = Html("")
_MOST_SHOWN = 4000
_SPECIAL = re.compile(r"""[^ !#-%(-;=?-~]""")
_INSIDE = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_./-]*\.(html|json|csv|xml|js)")


def escaped(value: str) -> str:
    """``value`` for text or a quoted attribute; plain ASCII, which is nearly all, needs one look."""
    if value.__class__ is Html or _SPECIAL.search(value) is None:
        return value
    return escape(value if value.isprintable() else clean(value))


def fill(template: LiteralString, /, **values: str) -> Html:
    """``template`` with ``{name}`` replaced by each value, escaped unless it is :class:`Html`.

    >>> fill('<a title="{why}">{what}</a>', why='"', what="<b>")
    '<a title="&quot;">&lt;b&gt;</a>'
    """
    for name, value in values.items():
        if value.__class__ is not Html and _SPECIAL.search(value) is not None:
            values[name] = escaped(value)
    return Html(template.format_map(values))


@cache
def _templates() -> dict[str, LiteralString]:
    """What ``assets/pages.html`` has under each name: its lines are joined, and an empty one is a line's end."""
    text = (files("levelbench.competition.site") / "assets" / "pages.html").read_text("utf-8")
    parts = (part.partition(" -->\n") for part in text.split("<!-- ")[1:])
    return {name: "".join(line or "\n" for line in body.split("\n")[:-1]) for name, _, body in parts}


def render(name: str, /, **values: str) -> Html:
    """The template ``name`` of ``assets/pages.html``, filled."""
    return fill(_templates()[name], **values)


def many(parts: Iterable[str]) -> Html:
    """The parts one after another, escaped unless they are :class:`Html`."""
    return Html("".join(map(escaped, parts)))


def root_of(name: str) -> str:
    """The way from a page (relative to the site's root) back to the root: ``""``, ``"../"``, ..."""
    return "../" * name.count("/")


def page(title: str, kind: str, name: str, main: Html, *, site: str, back: Html = _NONE, scripts: Html = _NONE) -> str:
    """A whole page: ``name`` is where it is, relative to the root; ``back`` are the links of the top besides home."""
    return render("page",
        root=root_of(name), kind=kind, policy=_POLICY, title=title, site=site, back=back, main=main, scripts=scripts,
        icon=asset("icon.svg"), style=asset("board.css"), theme=asset("theme.js"),
    )  # fmt: skip


def inside(root: str, name: str, text: str) -> Html:
    """A link to a file of the site; text alone where the name could lead out of it."""
    if not _INSIDE.fullmatch(name):
        return many([text])
    return fill('<a href="{root}{name}">{text}</a>', root=root, name=name, text=text)


def outside(address: str, text: str = "") -> Html:
    """A link to another site where the address is one to follow (``safe_url``); anything else is shown as text."""
    if safe_url(address) is None:
        return many([address[:_MOST_SHOWN]])
    return fill('<a href="{url}" rel="noopener nofollow noreferrer">{text}</a>', url=address, text=text or address)


def section(title: str, *parts: Html, identity: str = "") -> Html:
    """A section with its heading; nothing where it has no content."""
    content = many(parts)
    if not content:
        return Html("")
    where = f' id="{escaped(identity)}"' if identity else ""
    return Html(f"<section{where}><h2>{escaped(title)}</h2>{content}</section>\n")


def facts(pairs: Iterable[tuple[str, str | None]]) -> Html:
    """A list of names and values, those that are not stated left out; nothing where none is."""
    rows = [f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>" for name, value in pairs if value]
    return Html(f'<dl class="facts">{"".join(rows)}</dl>') if rows else _NONE


def table(caption: str, heads: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], most: int = 200) -> Html:
    """A plain table in a box that scrolls; ``heads`` are titles with a class (``n``: numbers, ``t``: short text).

    The first cell of each row is its heading. At most ``most`` rows are shown; a note says how many there are.
    """
    if not rows:
        return Html("")
    head = "".join(f'<th scope="col" class="{escaped(kind)}">{escaped(text)}</th>' for text, kind in heads)
    first, *rest = (escaped(kind).replace("{", "{{").replace("}", "}}") for _, kind in heads)
    cells = "".join(f'<td class="{kind}">{{}}</td>' for kind in rest)
    row = f'<tr><th scope="row" class="{first}">{{}}</th>{cells}</tr>'.format
    body = "".join(row(*map(escaped, texts)) for texts in rows[:most])
    note = Html(f'<p class="note">The first {most} of {len(rows):,} rows.</p>') if len(rows) > most else _NONE
    return fill(
        '<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table><caption class="hidden">{caption}'
        "</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}",
        caption=caption, head=Html(head), body=Html(body), note=note,
    )  # fmt: skip


def origin_words(origin: OriginFacts) -> str:
    """Which system's file an entry was read from, and how many doubts there are about it."""
    return origin.format + (f", {plural(len(origin.doubts), 'doubt')}" if origin.doubts else "")


def badges(entry: EntryPayload, *, always: bool = False) -> Html:
    """What a reader should know of an entry before its figures; ``always`` says also that it is not signed."""
    found: list[tuple[str, str]] = []
    errors, warnings = entry.findings.errors, entry.findings.warnings
    if errors:
        found.append(("bad", plural(errors, "error")))
    if entry.signed != "unsigned" or always:
        kind = {"signed": "good", "wrong": "bad", "unsigned": "plain"}[entry.signed]
        found.append((kind, "wrong signature" if entry.signed == "wrong" else entry.signed))
    if entry.single_run:
        found.append(("open", "single run"))
    if warnings:
        found.append(("open", plural(warnings, "warning")))
    if entry.lint:
        found.append(("plain", f"lint: {entry.lint}"))
    if entry.origin is not None:
        found.append(("plain", origin_words(entry.origin)))
    items = "".join(f'<li class="badge {escaped(kind)}">{escaped(text)}</li>' for kind, text in found)
    return Html(f'<ul class="badges">{items}</ul>') if items else _NONE


def quality_text(value: float, target: Target) -> str:
    """A quality on its own scale; a share of one as per cent where it is an accuracy.

    >>> quality_text(0.94, Target("top1", 0.94)), quality_text(0.75, Target("f1", 0.75))
    ('94 %', '0.75')
    """
    accuracy = any(each in target.metric.lower() for each in ("acc", "top"))
    share = target.low == 0.0 and target.high == 1.0 and accuracy
    return f"{100 * value:.4g} %" if share else f"{value:.4g}"


def target_text(target: Target) -> str:
    """The target in words: metric, bound and split."""
    bound = "at least" if target.direction == "higher" else "at most"
    metric = _METRICS.get(target.metric.lower(), target.metric)
    return f"{metric} {bound} {quality_text(target.threshold, target)} on the {target.split} split"


def rules(ruleset: RulesetFacts, further: Iterable[tuple[str, str]] = ()) -> Html:
    """The rules of a board as facts, then ``further`` ones."""
    crossing = {
        "first": "the first evaluation at or beyond the target",
        "confirmed": "two evaluations in a row at or beyond the target",
        "sustained": "the evaluation from which on all are at or beyond the target",
        "final": "the last evaluation",
    }
    return facts(
        [
            ("Rules", f"{ruleset.name} {ruleset.version} ({ruleset.id}), of {ruleset.date or ABSENT}"),
            ("Source", outside(ruleset.source)),
            ("Clock", ruleset.clock),
            ("Target counts as reached at", crossing.get(ruleset.crossing, ruleset.crossing)),
            ("Runs become one figure by", ruleset.aggregation),
            ("Runs an entry of training needs", str(ruleset.runs)),
            *further,
        ]
    )
