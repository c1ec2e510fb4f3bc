"""The site's first page: each board as a card with its records, and what is not shown and why."""

from __future__ import annotations

from collections.abc import Sequence

from levelbench.competition.site.parts import TITLES, facts, fill, inside, many, outside, page, section, target_text
from levelbench.competition.site.payload import NotShown, SiteFacts, TaskCard
from levelbench.report.markup import Html
from levelbench.report.numbers import ABSENT

_MOST_REASONS = 12


def index_page(site: SiteFacts, tasks: Sequence[TaskCard]) -> str:
    """The index of ``site`` with a card for each of ``tasks``, as the text of an HTML document."""
    cards = many(_card(card) for card in tasks)
    lead = (
        f"{site.entries:,} entr{'y' if site.entries == 1 else 'ies'} on {len(tasks)} "
        f"board{'s' * (len(tasks) != 1)}, as of {site.generated or ABSENT}."
    )
    main = fill(
        '<div class="intro"><h1>{title}</h1><p class="lead">{lead} {what}</p></div>\n'
        '<section aria-label="Boards"><div class="cards">{cards}</div></section>\n{rules}{near}{missing}{machines}',
        title=site.title,
        lead=lead,
        what="Deep learning, measured end to end: how long and how many dollars until a model is good enough, "
        "and what one answer of it takes.",
        cards=cards or Html('<p class="note">No entry yet.</p>'),
        rules=_rulesets(tasks),
        near=_listed(
            "Doubtful",
            site.near,
            "These entries share runs or curves with others, or nearly, or cannot be compared with most others.",
        ),
        missing=_listed(
            "Not shown", site.not_shown, "These files are in the folder but on no board, for these reasons."
        ),
        machines=_machines(site),
    )
    return page(site.title, "index", "index.html", main, site=site.title)


def _card(card: TaskCard) -> Html:
    """One board: its target and the first of each column."""
    leaders = many(
        fill(
            '<div class="leader"><dt>{column}{division}</dt><dd class="value">{text}</dd><dd class="by">{model}, '
            '{author}</dd><dd class="by">{standing}</dd></div>',
            column=TITLES[leader.column],
            division=f", {leader.division}" if leader.division else "",
            text=leader.text.partition(" [")[0],
            model=inside("", leader.page, leader.model),
            author=leader.author,
            standing=leader.standing,
        )
        for leader in card.leaders
    )
    count = f"{card.entries:,} entr{'y' if card.entries == 1 else 'ies'}"
    return fill(
        '<article class="card"><h2>{link}</h2><p class="target-line">{target}</p><dl class="leaders">{leaders}</dl>'
        '<p class="foot"><span>{count}</span><span>newest {newest}</span><span>rules {rules}</span></p></article>',
        link=inside("", card.page, card.title),
        target=card.about or target_text(card.target),
        leaders=leaders or Html('<div class="leader"><dt>No figure yet</dt></div>'),
        count=count,
        newest=card.newest or ABSENT,
        rules=card.ruleset.id,
    )


def _rulesets(tasks: Sequence[TaskCard]) -> Html:
    """Each version of rules once."""
    known = {card.ruleset.id: card.ruleset for card in tasks}
    rows = [
        (
            f"{each.name} {each.version}",
            many(
                [
                    each.aggregation,
                    Html("<br>"),
                    f"Clock {each.clock}, crossing {each.crossing}, of {each.date or ABSENT}. ",
                    outside(each.source),
                ]
            ),
        )
        for _, each in sorted(known.items())
    ]
    return section("Rules", facts(rows))


def _listed(title: str, files: Sequence[NotShown], note: str) -> Html:
    """Files, each with what was found and what to do."""
    items = []
    for each in files:
        reasons = each.reasons[:_MOST_REASONS]
        rest = len(each.reasons) - len(reasons)
        more = [f"{rest} more"] if rest > 0 else []
        lines = many(fill("<li>{text}</li>", text=text) for text in [*reasons, *more])
        items.append(fill("<li><code>{file}</code><ul>{lines}</ul></li>", file=each.file, lines=lines))
    if not items:
        return Html("")
    return section(
        title,
        fill('<p class="note">{note}</p>', note=note),
        fill('<ul class="missing-files">{items}</ul>', items=many(items)),
    )


def _machines(site: SiteFacts) -> Html:
    """The same data for programs."""
    links = [inside("", "leaderboard.json", "JSON"), inside("", "leaderboard.csv", "CSV")]
    links += [inside("", site.feed, "feed of new entries")] if site.feed else []
    listed = many(fill("<li>{link}</li>", link=link) for link in links)
    return section("For programs", fill('<ul class="inline">{links}</ul>', links=listed))
