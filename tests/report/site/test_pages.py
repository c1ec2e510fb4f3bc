import re
from html import escape
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.records.schema import Target
from levelbench.records.submissions.rules import Finding
from levelbench.report.markup import Html
from levelbench.report.site import pages
from levelbench.report.site.axes import log_scale, time_ticks
from levelbench.report.site.drawings import curve_drawing, interval_bar, phases_drawing, progress_drawing
from levelbench.report.site.parts import fill, inside, outside, quality_text, target_text
from levelbench.report.site.payload import Leader, NotShown, SiteFacts, TaskCard

MARKUP = "<img src=x onerror=alert(1)>"


class Reader(HTMLParser):
    """Every element with its attributes, and the text of the page."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def all_pages(by_hand):
    """The three kinds of page, with ``text`` wherever somebody may write."""

    def made(text):
        whole = by_hand.board([by_hand.hostile(text)], title=text, task_title=text, generated=text)
        whole.ruleset.name = whole.ruleset.source = whole.ruleset.aggregation = whole.ruleset.id = text
        whole.progress = {"time": [("2024-05-01", 10.0, 0)]}
        finding = Finding("B101", "warning", text, text, text, text)
        card = TaskCard(
            "task", "task.html", "task", text, Target(text, 0.9), whole.ruleset, ["training"], 1, text,
            [Leader("time", text, text, text, text)],
        )  # fmt: skip
        site = SiteFacts(text, text, "", text, 1, [NotShown(text, [text])], text)
        return {
            "index": pages.index_page(site, [card]),
            "task": pages.task_page(whole),
            "entry": pages.entry_page(whole, whole.entries[0], by_hand.submission(text), [finding]),
        }

    return made


@pytest.mark.parametrize("kind", ["index", "task", "entry"])
def test_what_an_author_writes_is_never_markup(all_pages, kind):
    page = all_pages(MARKUP)[kind]
    assert "<img" not in page
    assert MARKUP in Reader(page).text


@pytest.mark.parametrize(
    "text", ["'\"><b onclick=x>", "</title></script><i>", "{a}{{b}}", "--><s>", "&lt;u&gt;", "javascript:x"]
)
def test_a_page_has_the_same_elements_whatever_its_texts_are(all_pages, text):
    for kind, page in all_pages(text).items():
        assert skeleton(page) == skeleton(all_pages("plain")[kind])


def skeleton(page):
    """Each element with its attributes' names, of which those of an address may differ with it."""
    return [(name, sorted(attributes)) for name, attributes in Reader(page).elements]


@pytest.mark.parametrize("kind", ["index", "task", "entry"])
def test_no_page_has_an_inline_script_or_style_or_an_address_outside(all_pages, kind):
    reader = Reader(all_pages("plain")[kind])
    assert all(each.get("src") and "//" not in each["src"] for each in reader.all("script"))
    assert not reader.all("style")
    assert not [name for _, attributes in reader.elements for name in attributes if name == "style" or name[:2] == "on"]
    assert all("//" not in each["href"] for each in reader.all("link"))
    policy = next(each["content"] for each in reader.all("meta") if "http-equiv" in each)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_every_file_that_a_page_loads_is_an_asset_or_the_board_itself(all_pages):
    names = {f"assets/{name}" for name in pages.assets()} | {"data/task.js"}
    for page in all_pages("plain").values():
        reader = Reader(page)
        loaded = {each["href"] for each in reader.all("link")} | {each["src"] for each in reader.all("script")}
        assert {name.removeprefix("../") for name in loaded} <= names


def test_the_assets_ask_the_network_for_nothing():
    for name, content in pages.assets().items():
        text = content.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|url\((?!#)|@import|fetch\(|XMLHttpRequest|eval\(|innerHTML", text), name


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "//example.org",
        "https://",
        "https:\n//x.org",
        "ftp://x.org",
        "/x",
        "",
    ],
)
def test_only_an_http_address_is_a_link(address):
    assert "<a" not in outside(address)


def test_a_link_outside_follows_nothing_back():
    assert 'rel="noopener nofollow noreferrer"' in outside("https://example.org/a?b=1&c=2")


@pytest.mark.parametrize(
    "name", ["../x.html", "/x.html", "a/../../x.html", "javascript:x.html", "//x.html", "x.html?a"]
)
def test_no_page_of_the_site_is_outside_of_it(name):
    assert inside("", name, "text") == "text"


def test_a_template_escapes_what_is_not_markup_and_reads_no_braces_of_a_value():
    assert fill('<p title="{a}">{b}{c}</p>', a="\"'", b="{a}<", c=Html("<br>")) == (
        '<p title="&quot;&#x27;">{a}&lt;<br></p>'
    )


def test_every_ascii_character_is_escaped_as_the_standard_library_does():
    text = "".join(map(chr, range(32, 127)))
    assert fill("{a}", a=text) == escape(text)
    assert [fill("{a}", a=each) for each in text] == [escape(each) for each in text]


@pytest.mark.parametrize("character", ["\u202e", "\u200b", "\x00", "\x1b", "\ud800"])
def test_a_character_that_hides_or_turns_text_is_shown(character):
    shown = fill("{a}", a=f"a{character}b")
    assert character not in shown
    assert "\\" in shown


def test_without_a_script_the_table_has_the_first_columns_ranking_in_its_order(by_hand):
    entries = [
        by_hand.entry("third", figures={"time": by_hand.figure(30.0, "30 s", 3)}),
        by_hand.entry("none", figures={"time": by_hand.figure(None, "–", None, note="no run arrived")}),
        by_hand.entry("first", figures={"time": by_hand.figure(10.0, "10 s [9, 11]", 1, low=9.0, high=11.0)}),
    ]
    page = pages.task_page(by_hand.board(entries))
    body = page[page.index("<tbody") :]
    assert re.findall(r'class="entry"><a [^>]*>(\w+)', body) == ["first", "third", "none"]
    assert '<b>10 s</b><small class="range">[9, 11]</small>' in body
    assert "no run arrived" in body


def test_the_static_table_ends_at_500_rows_and_says_so(by_hand):
    page = pages.task_page(by_hand.board([by_hand.entry(f"e{at}") for at in range(501)]))
    assert page.count('<tr role="row"><td') == 500
    assert "The first 500 of 501 entries" in page


def test_a_shared_rank_is_marked(by_hand):
    tied = by_hand.entry("a", figures={"time": by_hand.figure(1.0, "1 s", 2, shared=True)})
    assert '<td role="cell" class="rank">2=</td>' in pages.task_page(by_hand.board([tied]))


def test_an_entrys_page_has_every_run_and_what_became_of_it(by_hand):
    entry = by_hand.entry("a", steps=[[(0.5, 1.0), (0.95, 3.0)], []], n=2, reached=1, reached_text="1/2 [9 %, 91 %]")
    text = Reader(pages.entry_page(by_hand.board([]), entry, by_hand.submission("out of memory"), [])).text
    assert "yes3 s95 %" in text
    assert "failed: out of memory" in text
    assert "1/2[9 %, 91 %]" in text


def test_nobody_says_that_a_run_of_a_refused_entry_did_not_arrive(by_hand):
    refused = pages.entry_page(by_hand.board([]), by_hand.entry("a", steps=[]), by_hand.submission(), [])
    assert ">Reached</th>" not in refused
    assert ">Status</th>" in refused


def test_an_entrys_page_says_of_each_finding_what_to_do(by_hand):
    finding = Finding("B120", "error", "a.json", "runs[2].seed", "two runs have seed 3", "give each its own")
    text = Reader(pages.entry_page(by_hand.board([]), by_hand.entry("a"), by_hand.submission(), [finding])).text
    assert "error B120 runs[2].seed two runs have seed 3. give each its own." in text


def test_the_index_has_each_record_and_what_is_not_shown(all_pages):
    text = Reader(all_pages("plain")["index"]).text
    assert "Time to accuracyplainplain, plain" in text
    assert "Not shown" in text


@pytest.mark.parametrize(
    ("value", "target", "text"),
    [
        (0.94, Target("top1", 0.94), "94 %"),
        (0.75, Target("f1", 0.75), "0.75"),
        (1.6, Target("perplexity", 1.6, "lower", 1.0, None), "1.6"),
        (94.0, Target("top1Accuracy", 94.0, high=100.0), "94"),
    ],
)
def test_a_quality_is_shown_on_its_own_scale(value, target, text):
    assert quality_text(value, target) == text


def test_the_target_says_which_side_is_good():
    assert target_text(Target("loss", 1.5, "lower", 0.0, None)) == "loss at most 1.5 on the validation split"


def test_a_curve_without_a_finite_point_is_not_drawn():
    assert curve_drawing([("run", [1.0], [float("nan")]), ("run", [], [])], Target("top1", 0.9)) == ""


def test_a_curve_ends_where_the_run_ended():
    drawing = curve_drawing([("run", [0.0, 5.0, 10.0], [0.1, 0.5, 0.9])], Target("top1", 0.9))
    assert re.search(r'd="M70\.0 [\d.]+L347\.0 [\d.]+L624\.0 [\d.]+"', drawing)


def test_the_record_over_time_is_a_link_a_step():
    records = [("2020-01-01", 100.0, "100 s", "a", "a.html"), ("2021-01-01", 10.0, "10 s", "b", "b.html")]
    drawing = progress_drawing([*records, ("no date", 1.0, "1 s", "c", "c.html")], "2022-01-01", "time")
    assert re.findall('href="([^"]*)" aria-label="([^"]*)"', drawing) == [
        ("a.html", "2020-01-01: 100 s, a"),
        ("b.html", "2021-01-01: 10 s, b"),
    ]


def test_a_bar_without_an_interval_is_a_hollow_point():
    scale = log_scale(1.0, 100.0, 0.0, 100.0)
    assert 'class="point alone" cx="50.0"' in interval_bar(10.0, None, None, scale)
    assert 'x1="25.0" x2="75.0"' in interval_bar(10.0, 10**0.5, 10**1.5, scale)


def test_phases_are_shares_of_the_whole_and_an_unknown_one_is_drawn_as_other():
    drawing = phases_drawing({"forward": 3.0, "dream": 1.0})
    assert "forward 3 s (75 %)" in drawing
    assert 'class="p-other" x="480.00"' in drawing


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=40)
@given(
    points=st.lists(st.tuples(FINITE, FINITE), max_size=5),
    threshold=FINITE,
    direction=st.sampled_from(["higher", "lower"]),
)
def test_any_finite_curve_is_drawn_or_left_out(points, threshold, direction):
    times, qualities = [x for x, _ in points], [y for _, y in points]
    drawing = curve_drawing([("run", times, qualities)], Target("top1", threshold, direction))
    assert drawing == "" or "nan" not in drawing


@settings(max_examples=40)
@given(values=st.lists(st.tuples(st.dates(), FINITE), max_size=4), column=st.sampled_from(["time", "cost"]))
def test_any_records_are_drawn_or_left_out(values, column):
    records = [(day.isoformat(), value, "text", "who", "a.html") for day, value in sorted(values)]
    drawing = progress_drawing(records, "2026-01-01", column)
    assert drawing == "" or "nan" not in drawing


@pytest.mark.parametrize(("low", "high", "ticks"), [(0.5, 4000, [1, 60, 3600]), (8, 700, [10, 60, 600])])
def test_an_axis_of_time_is_marked_in_times_people_count_in(low, high, ticks):
    assert time_ticks(low, high) == ticks
