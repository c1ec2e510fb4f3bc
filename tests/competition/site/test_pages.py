"""The three kinds of page as text: what they say, and what no author can make them say."""

import gzip
import hashlib
import random
import re
from html.parser import HTMLParser

import msgspec
import pytest

from levelbench.competition.checks import EntryFinding
from levelbench.competition.figures import FLAGS
from levelbench.competition.rulesets import InferenceRules
from levelbench.competition.site import Leader, NotShown, OriginFacts
from levelbench.competition.site.boards import script
from levelbench.competition.site.build import LATER_BYTES
from levelbench.competition.site.index import ComparedScore, PublishedScore, index_page
from levelbench.competition.site.pages import entry_page, task_page
from levelbench.competition.site.parts import asset, assets
from levelbench.records.schema import Target

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
        finding = EntryFinding("B101", "warning", text, text, text, text)
        whole.target = Target(text, 0.9)
        card = (whole, [Leader("time", text, text, text, text)])
        files = [NotShown(text, [text])]
        scores = [ComparedScore(PublishedScore(text, "time", text, text), text, page) for page in ("", text)]
        return {
            "index": index_page(text, text, 1, [card], files, files, feed=text, search=text, published=scores),
            "task": task_page(whole),
            "entry": entry_page(whole, whole.entries[0], by_hand.submission(text), [finding]),
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
    names = {f"assets/{name}" for name in assets()} | {"data/task.js"}
    for page in all_pages("plain").values():
        reader = Reader(page)
        loaded = {each["href"] for each in reader.all("link")} | {each["src"] for each in reader.all("script")}
        assert {name.removeprefix("../") for name in loaded} <= names


def test_the_assets_ask_the_network_for_nothing():
    for name, content in assets().items():
        text = content.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|url\((?!#)|@import|fetch\(|XMLHttpRequest|eval\(|innerHTML", text), name


def test_without_a_script_the_table_has_the_first_columns_ranking_in_its_order(by_hand):
    entries = [
        by_hand.entry("third", figures={"time": by_hand.figure(30.0, "30 s", 3)}),
        by_hand.entry("none", figures={"time": by_hand.figure(None, "–", None, note="no run arrived")}),
        by_hand.entry("first", figures={"time": by_hand.figure(10.0, "10 s [9, 11]", 1, low=9.0, high=11.0)}),
    ]
    page = task_page(by_hand.board(entries))
    body = page[page.index("<tbody") :]
    assert re.findall(r'class="entry"><a [^>]*>(\w+)', body) == ["first", "third", "none"]
    assert '<b>10 s</b><small class="range">[9, 11]</small>' in body
    assert "no run arrived" in body


def test_two_divisions_follow_one_another_and_each_has_its_own_first(by_hand):
    entries = [
        by_hand.entry("quick", figures={"time": by_hand.figure(5.0, "5 s")}),
        by_hand.entry("late", division="closed", figures={"time": by_hand.figure(30.0, "30 s", 2)}),
        by_hand.entry("plain", division="closed", figures={"time": by_hand.figure(20.0, "20 s")}),
        by_hand.entry("none", division="closed", figures={"time": by_hand.figure(None, "–", None)}),
    ]
    records = {"time": [("2024-05-01", 5.0, 0), ("2024-05-01", 20.0, 2)]}
    text = task_page(by_hand.board(entries, progress=records))
    assert re.findall(r'class="entry"><a href="entries/(\w+)', text) == ["plain", "late", "quick", "none"]
    assert re.findall(r'class="division" data-label="Division">(\w+)', text) == ["closed", "closed", "open", "closed"]
    assert "plain, plain author, closed division; 5 s: quick, quick author, open division" in text
    assert "Each division is ranked separately." in text
    assert len(re.findall(r"Time to accuracy, (?:closed|open) division: each point", text)) == 2


def test_a_metric_is_called_what_the_rules_call_it(by_hand):
    text = task_page(by_hand.board([by_hand.entry("one")], unit="share of right answers"))
    assert "Share of right answers at least 90 % on the validation split." in text


def test_where_all_are_in_one_division_no_column_says_so(by_hand):
    assert "ivision" not in task_page(by_hand.board([by_hand.entry("one")]))


def test_the_static_table_ends_at_100_rows_and_says_so(by_hand):
    page = task_page(by_hand.board([by_hand.entry(f"e{at}") for at in range(101)]))
    assert page.count('<tr role="row"><td') == 100
    assert "The first 100 of 101 entries" in page


def test_a_shared_rank_is_marked(by_hand):
    tied = by_hand.entry("a", figures={"time": by_hand.figure(1.0, "1 s", 2, shared=True)})
    assert '<td role="cell" class="rank">2=</td>' in task_page(by_hand.board([tied]))


def test_an_entrys_page_has_every_run_and_what_became_of_it(by_hand):
    entry = by_hand.entry("a", times_s=[3.0, None], n=2, reached=1, reached_text="1/2 [9 %, 91 %]")
    text = Reader(entry_page(by_hand.board([]), entry, by_hand.submission("out of memory"), [])).text
    assert "yes3 s95 %" in text
    assert "failed: out of memory" in text
    assert "1/2[9 %, 91 %]" in text


def test_nobody_says_that_a_run_of_a_refused_entry_did_not_arrive(by_hand):
    refused = entry_page(by_hand.board([]), by_hand.entry("a", steps=[]), by_hand.submission(), [])
    assert ">Reached</th>" not in refused
    assert ">Status</th>" in refused


def test_an_entrys_page_says_of_each_finding_what_to_do(by_hand):
    finding = EntryFinding("B120", "error", "a.json", "runs[2].seed", "two runs have seed 3", "give each its own")
    text = Reader(entry_page(by_hand.board([]), by_hand.entry("a"), by_hand.submission(), [finding])).text
    assert "error B120 runs[2].seed two runs have seed 3. give each its own." in text


def test_the_index_has_each_record_and_what_is_not_shown(all_pages):
    text = Reader(all_pages("plain")["index"]).text
    assert "Time to accuracyplainplain, plain" in text
    assert "Not shown" in text


def test_only_the_more_specific_doubt_is_shown(by_hand):
    flags = [FLAGS["single-run"], FLAGS["price-missing"], FLAGS["falls-back"]]
    doubts = ["single-run: one run, so its spread is unknown", "price: it is not stated", "format: a byte order mark"]
    entry = by_hand.entry("a", flags=flags, origin=OriginFacts("dawnbench", "a.json", doubts))
    text = Reader(entry_page(by_hand.board([]), entry, by_hand.submission(), [])).text
    assert all(text.count(doubt) == 1 for doubt in doubts)
    assert [flag in text for flag in flags] == [False, False, True]


def test_an_author_who_states_a_cost_is_not_blamed_twice_for_the_price(by_hand):
    entry = by_hand.entry("a", flags=[FLAGS["price-missing"], FLAGS["cost-stated"]])
    text = Reader(entry_page(by_hand.board([]), entry, by_hand.submission(), [])).text
    assert [FLAGS[flag] in text for flag in ("price-missing", "cost-stated")] == [False, True]


def test_a_doubt_that_runs_share_is_reported_once_below_them(by_hand):
    submission = by_hand.submission()
    runs = [msgspec.structs.replace(run, suspect=["a busy machine"]) for run in submission.runs]
    page = entry_page(by_hand.board([]), by_hand.entry("a"), by_hand.submission(runs=runs), [])
    assert page.count("a busy machine") == 1
    assert page.count('<td class="t">1</td>') == len(runs)


RULES = InferenceRules(
    ["single-stream", "server"], threshold=0.8, least_queries=662, least_duration_s=10.0, queries={"single-stream": 64}
)


def test_a_board_says_which_latency_it_compares_and_what_an_entry_of_inference_must_keep(by_hand):
    entry = by_hand.entry("a", mode="inference", n=1, figures={"latency": by_hand.figure(0.001, "1 ms")})
    board = by_hand.board([entry], inference=RULES, compared="single-stream, 90th percentile")
    text = Reader(task_page(board)).text
    assert "Latency (single-stream, 90th percentile)" in text
    assert "Latency is the 90th percentile of single-stream, as LoadGen's early stopping estimates it" in text
    assert "single-stream: 64; 662 of every other scenario" in text
    assert "top-1 accuracy at least 80 %" in text
    assert "Least time of inference10 s" in text


def test_rules_without_inference_say_nothing_of_it(by_hand):
    assert "of inference" not in Reader(task_page(by_hand.board([by_hand.entry("a")]))).text


def test_why_an_entry_has_no_figure_stands_under_its_name(by_hand):
    entry = by_hand.entry("a", figures={"time": by_hand.figure(None, "–", None, note="no run arrived")})
    page = task_page(by_hand.board([entry]))
    assert re.search(r'<th scope="row"[^>]*>(?:(?!</th>).)*<small class="why">no run arrived</small></th>', page)


def test_an_asset_is_named_after_its_content():
    for name, content in assets().items():
        assert hashlib.sha256(content).hexdigest()[:10] in name
    assert asset("board.js").removeprefix("assets/") in assets()


def test_a_column_without_a_record_says_so_where_the_record_over_time_would_be(by_hand):
    figures = {"time": by_hand.figure(10.0, "10 s"), "cost": by_hand.figure(None, "\u2013", None)}
    board = by_hand.board([by_hand.entry("a", figures=figures)], progress={"time": [("2024-05-01", 10.0, 0)]})
    page = task_page(board)
    assert re.findall(r'data-progress="(\w+)">(?!<figcaption)([^<]*)<', page) == [
        ("cost", "Cost of training: no entries yet.")
    ]
    assert "Time to accuracy: no entries yet." in task_page(by_hand.board([]))


def test_every_page_says_whose_word_its_figures_are(all_pages):
    for page in all_pages("plain").values():
        footer = page[page.index("<footer>") :]
        assert "times and costs of training are recomputed from their curves" in footer
        assert "Latency, throughput and energy are the authors' own measurements" in footer


def test_a_page_of_5000_entries_is_at_most_150_kb_before_its_reader_does_anything(by_hand):
    chance, entries = random.Random(0), []
    for at in range(5000):
        seconds = chance.lognormvariate(6, 1.5)
        time = by_hand.figure(seconds, f"{seconds:.3g} s", at + 1, low=0.9 * seconds, high=1.1 * seconds)
        names = {"author": f"author {at % 321}", "hardware": f"machine {at % 57}", "framework": f"framework {at % 12}"}
        entries.append(by_hand.entry(f"net {chance.random():.9f}", figures={"time": time}, **names))
    whole = by_hand.board(entries)
    assert len(script(whole)) > LATER_BYTES  # so the reader's first move asks for the data
    page = task_page(whole, later=True)
    assert all("data/" not in each.get("src", "") for each in Reader(page).all("script"))
    assert sum(len(gzip.compress(each)) for each in (page.encode(), *assets().values())) < 150_000
