"""The page of a report is well-formed, asks for nothing from outside, and lets nothing become markup."""

import base64
import csv
import hashlib
import io
import itertools
import re
from xml.etree import ElementTree as ET

import pytest
from tests.report.pages import PAYLOADS, Page, compared, needs_matplotlib

from levelbench.report import run_figures as figures
from levelbench.report.markup import Html, tag
from levelbench.report.page import report_page, write_report
from levelbench.report.tables import clean


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


def svgs(text):
    return re.findall(r"<svg [^>]*xmlns.*?</svg>", text, re.DOTALL)


def test_the_page_is_well_formed(page):
    parsed = Page(page)
    assert parsed.unbalanced == []
    assert parsed.open == []


def test_the_page_asks_for_nothing_from_outside(page):
    parsed = Page(page)
    names = {name for name, _ in parsed.elements}
    assert not names & {"link", "iframe", "img", "object", "embed", "form", "base", "image"}
    for name, attributes in parsed.elements:
        for key in ("src", "href", "xlink:href", "action", "srcset", "data"):
            assert attributes.get(key, "#").startswith(("#", "data:text/csv")), (name, key)
        assert "url(" not in (attributes.get("style") or "").replace("url(#", "")
    assert "@import" not in page
    assert parsed.all("script") == [{}]


def test_the_policy_forbids_everything_but_its_own_style(page):
    (policy,) = [each["content"] for each in Page(page).all("meta") if each.get("http-equiv")]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_the_only_script_that_may_run_is_the_one_on_the_page(page):
    (policy,) = [each["content"] for each in Page(page).all("meta") if each.get("http-equiv")]
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.split("script-src ")[1] == f"'sha256-{digest}'"


def test_a_page_without_curves_has_no_script_and_may_run_none():
    text = report_page([], [])
    assert "<script" not in text
    assert "script-src" not in text


def test_the_licence_of_the_library_is_on_the_page(page):
    assert "Copyright (c) 2022 Leon Sorokin" in page
    assert "The MIT License" in page


def test_each_value_of_a_table_names_its_column_for_a_phones_cards(page):
    cells = Page(page).all("td")
    assert all("data-of" in each for each in cells)
    assert {"reached", "seed", "status"} <= {each["data-of"] for each in cells}


def test_the_first_doubts_are_open_and_the_others_folded_and_each_is_said_once(two_arms, undrawn):
    doubts = [f"doubt: number {at}" for at in range(5)]
    text = report_page(two_arms, compared(two_arms), caveats=doubts)
    assert all(text.count(each) == 1 for each in doubts)
    assert text.index("number 2") < text.index("<summary>2 more</summary>") < text.index("number 3")


def test_the_verdict_comes_before_the_first_table_and_the_attribution_after_it(page):
    assert page.index('class="verdict FASTER"') < page.index("forward: 0.04 s less") < page.index("<table ")


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


@pytest.mark.slow
@needs_matplotlib
@pytest.mark.parametrize("payload", [PAYLOADS[4], " ".join(PAYLOADS)], ids=["formula", "all"])
def test_nothing_that_comes_from_outside_becomes_markup_beside_drawings(payload, make, group, harmless):
    holds_as_text(page_with(payload, make, group), payload, harmless)


def test_text_is_escaped_unless_it_is_markup_already():
    assert tag("p", "<b>", Html("<i></i>"), title='"') == '<p title="&quot;">&lt;b&gt;<i></i></p>'


def test_what_differs_between_the_arms_comes_before_what_they_share(page):
    assert page.index("Differs: ") < page.index("OMP_NUM_THREADS") < page.index("Common to all groups")


def test_the_same_records_make_the_same_page(page, two_arms, tmp_path):
    path = write_report(two_arms, compared(two_arms), tmp_path / "r.html", attributions=["forward: 0.04 s less"])
    assert path.read_text(encoding="utf-8") == page


def test_without_matplotlib_the_page_says_what_to_install_and_keeps_the_data(two_arms, undrawn):
    text = report_page(two_arms, compared(two_arms))
    assert text.count("levelbench[plot]") == 4
    assert text.count("<details>") == 4
    assert Page(text).unbalanced == []


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
