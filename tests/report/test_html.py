import base64
import csv
import dataclasses
import io
import itertools
import math
import os
import re
import stat
import warnings
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from msgspec import structs

from levelbench.errors import StoreError
from levelbench.measure.verdict import verdict
from levelbench.records.schema import Target
from levelbench.report import figures
from levelbench.report.files import write_csv, write_markdown, write_whole
from levelbench.report.html import report_page, write_report
from levelbench.report.markup import Html, tag
from levelbench.report.plots import draw_phases, draw_times
from levelbench.report.tables import clean

VOID = {"meta", "br", "wbr"}
PAYLOADS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'onmouseover='alert(1)",
    "</style></svg></title><iframe src=//e.example>",
    "${7*7}{{7*7}}$x^2$\\frac",
    "\x00\x1b[31m\u202eevil\ud800",
    'style="font-size: 3px; font-family: a',
    "&lt;script&gt;&#60;",
    "😀 任务 \u202e",
]


class Page(HTMLParser):
    """Reads a page as a browser would: elements with their attributes, balance, and text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.text, self.unbalanced = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.elements.append((name, dict(attributes)))

    def handle_endtag(self, name):
        if not self.open or self.open.pop() != name:
            self.unbalanced.append(name)

    def handle_data(self, data):
        self.text.append(data)

    def all(self, name):
        return [attributes for each, attributes in self.elements if each == name]


def compared(groups):
    (a, _), (b, _) = groups
    return [(a.label, b.label, verdict(a.times(), b.times()))]


@pytest.fixture(scope="module")
def drawn(two_arms):
    """A page, and matplotlib's settings before and after it was drawn."""
    settings = []
    if figures.can_draw():
        import matplotlib as mpl

        settings.append(dict(mpl.rcParams))
    text = report_page(two_arms, compared(two_arms), attributions=["forward: 0.04 s less"])
    if settings:
        settings.append(dict(mpl.rcParams))
    return text, settings


@pytest.fixture(scope="module")
def page(drawn):
    return drawn[0]


@pytest.fixture
def undrawn(monkeypatch):
    """Pages without drawings, which take most of the time."""
    monkeypatch.setattr(figures, "can_draw", lambda: False)


def svgs(text):
    return re.findall(r"<svg [^>]*xmlns.*?</svg>", text, re.DOTALL)


needs_matplotlib = pytest.mark.skipif(not figures.can_draw(), reason="matplotlib is not installed (extra: plot)")


def test_the_page_is_well_formed(page):
    parsed = Page(page)
    assert parsed.unbalanced == []
    assert parsed.open == []


def test_the_page_asks_for_nothing_from_outside(page):
    parsed = Page(page)
    names = {name for name, _ in parsed.elements}
    assert not names & {"script", "link", "iframe", "img", "object", "embed", "form", "base", "image"}
    for name, attributes in parsed.elements:
        for key in ("src", "href", "xlink:href", "action", "srcset", "data"):
            assert attributes.get(key, "#").startswith(("#", "data:text/csv")), (name, key)
        assert "url(" not in (attributes.get("style") or "").replace("url(#", "")
    assert "@import" not in page


def test_the_policy_forbids_everything_but_its_own_style(page):
    (policy,) = [each["content"] for each in Page(page).all("meta") if each.get("http-equiv")]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_the_verdict_comes_before_the_first_table_and_the_attribution_after_it(page):
    assert page.index('class="verdict FASTER"') < page.index("forward: 0.04 s less") < page.index("<table>")


def test_headings_are_in_order_and_there_is_one_of_the_first_level(page):
    levels = [int(name[1]) for name, _ in Page(page).elements if re.fullmatch("h[1-6]", name)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_tables_say_what_their_headers_are_of_and_scroll_in_a_box_that_can_be_reached(page):
    parsed = Page(page)
    assert all(each.get("scope") in ("row", "col") for each in parsed.all("th"))
    boxes = [each for each in parsed.all("div") if each.get("class") == "scroll"]
    assert len(boxes) == len(parsed.all("table"))
    assert all(each["tabindex"] == "0" and each["aria-label"] for each in boxes)


def test_each_figure_has_words_for_those_who_cannot_see_it_and_its_data(page):
    parsed = Page(page)
    images = [each for each in parsed.all("div") if each.get("role") == "img"]
    assert len(images) == len(parsed.all("figure")) == 4
    assert all(len(each["aria-label"]) > 40 for each in images)
    assert sum("download" in each for each in parsed.all("a")) == 4


def test_the_data_of_the_curves_is_every_evaluation_of_every_run(page, two_arms):
    link = next(each for each in Page(page).all("a") if each.get("download") == "curves.csv")
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(link["href"].partition(",")[2]).decode())))
    assert len(rows) == sum(len(record.evaluations) for _, records in two_arms for record in records)
    assert {"group", "seed", "samples", "time_s", "quality"} <= set(rows[0])


def test_identifiers_are_unique_on_the_page(page):
    identifiers = [attributes["id"] for _, attributes in Page(page).elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))


def page_with(words, make, group):
    """A page on which ``words`` stand wherever something from outside is shown."""
    records = [
        make(task=words, framework=framework, seed=seed, settings={words: words}, suspect=[words],
             environment={"machine": {words: words}, "cpu": f"{framework}{words}"})
        for framework in ("numpy", "torch") for seed in (1, 2)
    ]  # fmt: skip
    records.append(make(task=words, seed=3, settings={words: words}, status="failed", error=words))
    groups = group(records)
    return Page(report_page(groups, compared(groups), attributions=[words]))


def holds_as_text(parsed, payload, harmless):
    assert parsed.unbalanced == []
    # Where a name may be broken and in how many lines a drawing writes it depends on the name; nothing else does.
    assert {name for name, _ in parsed.elements} ^ {name for name, _ in harmless.elements} <= {"wbr", "tspan"}
    assert {key for _, each in parsed.elements for key in each} == {
        key for _, each in harmless.elements for key in each
    }
    assert not re.search(r"[\x00-\x08\x0b-\x1f\ud800-\udfff\u202e]", "".join(parsed.text))
    assert "".join(parsed.text).count(clean(payload)) > 10


@pytest.mark.parametrize("payload", PAYLOADS)
def test_nothing_that_comes_from_outside_becomes_markup(payload, make, group, undrawn):
    holds_as_text(page_with(payload, make, group), payload, page_with("digits", make, group))


@pytest.fixture(scope="module")
def harmless(make, group):
    return page_with("digits", make, group)


@needs_matplotlib
@pytest.mark.parametrize("payload", [PAYLOADS[4], " ".join(PAYLOADS)], ids=["formula", "all"])
def test_nothing_that_comes_from_outside_becomes_markup_beside_drawings(payload, make, group, harmless):
    holds_as_text(page_with(payload, make, group), payload, harmless)


@needs_matplotlib
@pytest.mark.parametrize("draw", [draw_phases, draw_times])
def test_no_label_becomes_markup_of_a_drawing(draw, make, group):
    ((only, _),) = group([make(seed=seed) for seed in (1, 2)])
    hostile, plain = (
        Page(draw("drawing", [dataclasses.replace(only, label=label) for label in labels]))
        for labels in (PAYLOADS, ["digits"] * len(PAYLOADS))
    )
    assert hostile.unbalanced == []
    assert {name for name, _ in hostile.elements} ^ {name for name, _ in plain.elements} <= {"tspan"}
    assert {key for _, each in hostile.elements for key in each} <= {key for _, each in plain.elements for key in each}
    assert not re.search(r"[\x00-\x08\x0b-\x1f\ud800-\udfff\u202e]", "".join(hostile.text))


def test_text_is_escaped_unless_it_is_markup_already():
    assert tag("p", "<b>", Html("<i></i>"), title='"') == '<p title="&quot;">&lt;b&gt;<i></i></p>'


def test_failures_misses_and_doubts_are_listed_with_their_reasons(one_missed):
    text = report_page(one_missed, [])
    listed = text[text.index("Failures and doubts") : text.index("<h2>Environment")]
    for expected in ("the loss is not a number", "did not reach the target", "1.7 cores", "interrupted"):
        assert expected in listed


def test_what_differs_between_the_arms_comes_before_what_they_share(page):
    assert page.index("Differs: ") < page.index("OMP_NUM_THREADS") < page.index("Common to all groups")


def test_the_page_of_two_groups_of_twenty_runs_is_below_a_megabyte(make, group):
    groups = group([make(framework=name, seed=seed) for name in ("numpy", "torch") for seed in range(20)])
    assert len(report_page(groups, compared(groups)).encode()) < 1_000_000


def test_many_groups_with_long_curves_stay_below_a_megabyte(make, group):
    runs = [make(settings={"lr": lr / 100}, seed=seed, rate=0.01, epochs=120) for lr in range(9) for seed in range(5)]
    assert len(report_page(group(runs), []).encode()) < 1_000_000


def test_the_same_records_make_the_same_page(page, two_arms, tmp_path):
    path = write_report(two_arms, compared(two_arms), tmp_path / "r.html", attributions=["forward: 0.04 s less"])
    assert path.read_text(encoding="utf-8") == page


def test_without_matplotlib_the_page_says_what_to_install_and_keeps_the_data(two_arms, undrawn):
    text = report_page(two_arms, compared(two_arms))
    assert text.count("levelbench[plot]") == 4
    assert text.count("<details>") == 4
    assert Page(text).unbalanced == []


def test_a_page_without_runs_is_a_page():
    assert "no runs" in report_page([], [])


def altered(record, **changes):
    return dataclasses.replace(
        record, evaluations=tuple(structs.replace(each, **changes) for each in record.evaluations)
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda record: dataclasses.replace(record, evaluations=(), samples={}, measurements=()),
        lambda record: altered(record, quality={"validation": math.nan}),
        lambda record: altered(record, quality={"validation": 0.97}),
        lambda record: altered(record, phases_ns={}, t_ns=0),
        lambda record: altered(record, phases_ns={"unheard-of": 5 * 10**9}, t_ns=5 * 10**9),
        lambda record: dataclasses.replace(record, end=None, status="interrupted"),
    ],
    ids=["no evaluations", "diverged", "level", "no phases", "unknown phase", "interrupted"],
)
def test_a_strange_run_beside_a_good_one_still_makes_a_page(change, make, group):
    parsed = Page(report_page(group([make(seed=1), change(make(seed=2))]), []))
    assert parsed.unbalanced == []
    assert len(parsed.all("figure")) == 4


def test_a_target_that_is_reached_from_above_is_drawn_too(make, group):
    records = []
    for seed in (1, 2):
        record = make(seed=seed)
        target = Target("loss", 0.03, "lower", 0.0, 1.0)
        specification = structs.replace(record.header.specification, target=target)
        record = dataclasses.replace(record, header=structs.replace(record.header, specification=specification))
        records.append(altered(record, quality={"validation": 0.02 + seed / 100}))
    assert "at most 0.03" in report_page(group(records), [])


def test_two_tasks_have_their_own_tables_and_figures(make, group):
    groups = group([make(task=task, seed=seed) for task in ("digits", "fashion-mnist") for seed in (1, 2)])
    text = report_page(groups, [])
    parsed = Page(text)
    assert len(parsed.all("figure")) == 8
    identifiers = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))


@needs_matplotlib
def test_drawings_are_svg_whose_colours_and_font_are_the_pages(page):
    drawings = svgs(page)
    assert len(drawings) == 4
    for drawing in drawings:
        ET.fromstring(drawing)
        assert "currentColor" in drawing
        assert "font-family" not in drawing
        assert not re.search(r"(?:fill|stroke): #0[12]0", drawing)


@needs_matplotlib
def test_drawing_leaves_matplotlibs_settings_as_they_were(drawn):
    before, after = drawn[1]
    assert after == before


def test_the_file_appears_whole_or_not_at_all(two_arms, tmp_path, monkeypatch, undrawn):
    path = tmp_path / "report.html"
    path.write_text("before")

    def fails(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(StoreError, match="No space left"):
        write_report(two_arms, [], path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_a_file_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"Choose a folder"):
        write_whole(tmp_path / "file" / "report.html", "x")


def test_folders_are_made_and_the_file_is_an_ordinary_one(two_arms, tmp_path, undrawn):
    path = write_report(two_arms, compared(two_arms), tmp_path / "a" / "b" / "report.html")
    assert stat.S_ISREG(path.stat().st_mode)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_markdown_holds_the_verdict_and_the_tables(two_arms, tmp_path):
    text = write_markdown(two_arms, compared(two_arms), tmp_path / "r.md").read_text(encoding="utf-8")
    assert "- FASTER" in text
    assert text.count("\n| :---") == 3


def test_csv_files_have_safe_names_and_every_table(make, group, tmp_path):
    paths = write_csv(group([make(task="../../etc/x", seed=seed) for seed in (1, 2)]), tmp_path / "csv")
    assert sorted(path.name for path in (tmp_path / "csv").iterdir()) == sorted(path.name for path in paths)
    assert {path.name for path in paths} == {"etc-x-groups.csv", "etc-x-phases.csv", "etc-x-curves.csv", "runs.csv"}


@needs_matplotlib
# The longest label leaves the least room: each scale is drawn beside it, each label beside one scale.
@pytest.mark.parametrize(
    ("label", "scale"),
    [("x", 1.0), ("fashion-mnist", 1.0)]
    + [("fashion-mnist[framework=torch,device=cuda,lr=0.1,a=b]", scale) for scale in (1e-6, 1.0, 40.0, 1e5)],
)
def test_a_single_group_is_drawn_whatever_its_label_and_times(make, group, label, scale, recwarn):
    ((only, _),) = group([make(seed=seed, speed_s=0.045 * scale) for seed in (1, 2)])
    only = dataclasses.replace(only, label=label)
    for drawing in (draw_phases("phases", [only]), draw_times("times", [only])):
        ET.fromstring(drawing)
    assert not recwarn.list


@needs_matplotlib
def test_a_warning_while_drawing_fails_no_report(two_arms, monkeypatch):
    def warns(*_, **__):
        warnings.warn("the axes are too small", UserWarning, stacklevel=1)

    monkeypatch.setattr("levelbench.report.plots._rows", warns)
    assert "<svg" in draw_times("times", [two_arms[0][0]])


def test_an_interrupt_while_writing_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupted(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "report.html", "x")
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_differs_in_a_later_run_is_said(make, group, undrawn):
    later = {"machine": {"cpu": "Another CPU"}}
    text = report_page(group([make(seed=1), make(seed=2, environment=later)]), [])
    assert text.index("Differs between the runs of digits") < text.index("Another CPU")
