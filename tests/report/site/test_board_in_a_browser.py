"""The pages in headless Chromium: what a reader does with them, and what an author must not be able to do."""

from pathlib import Path

import pytest

from levelbench.records.rulesets.schema import Aggregation, InferenceRules
from levelbench.records.submissions.aggregation import Times, aggregate
from levelbench.report.site import pages
from levelbench.report.site.boards import filled
from levelbench.report.site.inference_rules import compared
from levelbench.report.site.payload import FindingCounts, Leader, NotShown, OriginFacts, SiteFacts, TaskCard
from levelbench.report.site.scripts import joined_steps, script, steps_script

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = Path("/usr/bin/chromium")
QUIET = ["--no-sandbox", "--disable-gpu", "--in-process-gpu", "--renderer-process-limit=1", "--process-per-site"]
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="no /usr/bin/chromium to open the pages in")

PAYLOADS = [
    "<script>window.xss=1</script>",
    "</script><script>window.xss=1</script>",
    "<img src=x onerror=window.xss=1>",
    "<svg onload=window.xss=1>",
    '"><b onmouseover=window.xss=1 autofocus onfocus=window.xss=1>',
    "' onfocus='window.xss=1' autofocus='",
    "javascript:window.xss=1",
    "data:text/html,<script>window.xss=1</script>",
    "{{constructor.constructor('window.xss=1')()}}",
    "${window.xss=1}`+window.xss=1+`",
    "a\u2028window.xss=1\u2029//",
    "--><!--<style>*{display:none}</style>",
    "__proto__",
]
ADDRESSES = [text for text in PAYLOADS if text.startswith(("javascript:", "data:"))]
ELEMENTS = "img,iframe,object,embed,style,form[action],script:not([src]),[onload],[onerror],[onfocus],[onmouseover]"
UNSAFE = "a[href^='javascript' i],a[href^='data' i]"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=str(CHROMIUM), args=QUIET)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def shared(browser):
    """One context for tests that change nothing outside their page."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    yield context
    context.close()


def watched(context, wrong):
    """A new page that adds to ``wrong`` what it logs and what it asks of the network."""
    page = context.new_page()
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda asked: None if asked.url.startswith("file:") else wrong.append(asked.url))
    return page


@pytest.fixture(scope="module")
def tab(shared):
    """A page that is used again and again (a new one is a new process), what went wrong on it, and its debugger."""
    wrong = []
    page = watched(shared, wrong)
    return page, wrong, shared.new_cdp_session(page)


@pytest.fixture
def visit(tab):
    """Open a file; at the end, no error was logged and nothing but files was asked for.

    ``unguarded``: the page's policy forbids nothing, so what stops an attack is the escaping alone.
    """
    page, wrong, debugger = tab

    def open_page(path, fragment="", *, unguarded=False):
        debugger.send("Page.setBypassCSP", {"enabled": unguarded})
        page.goto(path.as_uri() + fragment)
        return page

    yield open_page
    found = [*wrong]
    wrong.clear()
    assert found == []


def write_site(folder, board, submissions, cards=(), not_shown=()):
    for name, content in pages.assets().items():
        (folder / "assets").mkdir(exist_ok=True)
        (folder / "assets" / name).write_bytes(content)
    (folder / "data").mkdir()
    (folder / "entries").mkdir()
    (folder / board.data).write_bytes(script(board))
    (folder / board.page).write_text(pages.task_page(board))
    for entry, submission in submissions:
        (folder / entry.page).write_text(pages.entry_page(board, entry, submission, []))
    site = SiteFacts(board.title, board.generated, "", "0.1", len(board.entries), list(not_shown))
    (folder / "index.html").write_text(pages.index_page(site, cards))
    return folder


def card_of(board, leaders):
    return TaskCard(
        "task", board.page, "task", board.task_title, board.target, board.ruleset, board.modes, len(board.entries),
        "2024-05-01", leaders,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory, by_hand):
    """Alpha is first at 90 %, beta at 80 %; gamma never gets to 90 %, and delta answers."""
    make, figure = by_hand.entry, by_hand.figure
    alpha = make(
        "alpha", framework="PyTorch", signed="signed", n=3, reached=3, single_run=False,
        figures={"time": figure(10.0, "10 s [9, 11]", 1, low=9.0, high=11.0), "cost": figure(0.01, "$0.01", 2)},
        steps=[[(0.5, 1.0), (0.8, time - 2), (0.9, time), (0.95, time + 9)] for time in (9.0, 10.0, 11.0)],
    )  # fmt: skip
    beta = make(
        "beta", framework="JAX", hardware="TPU", date="2023-02-03", price=None, findings=FindingCounts(0, 2),
        figures={"time": figure(20.0, "20 s", 2), "cost": figure(None, "–", None, note="no price is stated")},
        steps=[[(0.5, 1.0), (0.8, 2.0), (0.9, 20.0)]],
    )  # fmt: skip
    gamma = make(
        "gamma", reached=0, signed="wrong", origin=OriginFacts("dawnbench", "x.json", ["odd"]),
        figures={"time": figure(None, "–", None, note="no run arrived"), "cost": figure(0.005, "$0.005", 1)},
        steps=[[(0.5, 1.0), (0.8, 5.0)]],
    )  # fmt: skip
    delta = make(
        "delta", mode="inference", division="closed", n=0, reached=0, steps=[],
        figures={"latency": figure(0.001, "1 ms"), "inference_cost": figure(1.0, "$1")},
    )  # fmt: skip
    entries = [gamma, beta, alpha, delta]
    rules = InferenceRules(["server"], threshold=0.8)
    board = by_hand.board(
        entries,
        inference=rules,
        compared=compared(rules),
        progress={"time": [("2023-02-03", 20.0, 1), ("2024-05-01", 10.0, 2)]},
    )
    card = card_of(board, [Leader("time", "alpha", "alpha author", "10 s", alpha.page)])
    missing = [NotShown("task/training/broken.json", ["no JSON. Write it again"])]
    folder = tmp_path_factory.mktemp("site")
    return write_site(folder, board, [(alpha, by_hand.submission(notes="Read me."))], [card], missing)


@pytest.fixture(scope="module")
def kept(shared, site):
    """The board's page, loaded once, and what went wrong on it."""
    wrong = []
    page = watched(shared, wrong)
    page.goto((site / "task.html").as_uri())
    return page, wrong


FOLLOW = """(fragment) => new Promise((done) => {
  addEventListener("hashchange", done, {once: true});
  location.hash = `${fragment}&visit=${Math.random()}`;
})"""


@pytest.fixture
def board(kept):
    """The board's page, to which a link with a fragment was followed."""
    page, wrong = kept

    def follow(fragment="#column="):
        page.evaluate(FOLLOW, fragment)
        return page

    yield follow
    assert wrong == []


def names(page):
    return page.evaluate("[...document.querySelectorAll('#ranking tbody .entry a')].map((each) => each.innerText)")


def test_the_board_opens_sorted_by_rank_with_what_has_none_last(board):
    assert names(board()) == ["alpha", "beta", "gamma"]


def test_a_column_is_chosen_with_the_arrow_keys(board):
    page = board()
    page.locator("input[value=time]").focus()
    page.keyboard.press("ArrowRight")
    assert names(page) == ["gamma", "alpha", "beta"]
    assert page.locator("#ranking caption").inner_text() == "Ranking by cost of training"
    page.keyboard.press("ArrowRight")
    assert names(page) == ["delta"]
    assert page.locator("#slider").is_hidden()


def test_a_heading_sorts_both_ways_and_says_so(board):
    page = board()
    heading = page.get_by_role("button", name="Date")
    heading.click()
    assert names(page) == ["beta", "gamma", "alpha"] or names(page) == ["beta", "alpha", "gamma"]
    assert page.locator("th.date").get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")
    assert names(page)[2] == "beta"
    assert page.locator("th.date").get_attribute("aria-sort") == "descending"


def test_what_has_no_figure_is_last_whichever_way_it_is_sorted(board):
    assert names(board("#sort=figure")) == ["alpha", "beta", "gamma"]
    assert names(board("#sort=figure%3Adesc")) == ["beta", "alpha", "gamma"]


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ("q=tpu", ["beta"]),
        ("q=alpha+pytorch", ["alpha"]),
        ("framework=JAX", ["beta"]),
        ("hardware=gpu", ["alpha", "gamma"]),
        ("division=open", ["alpha", "beta", "gamma"]),
        ("division=closed", []),
        ("division=closed&column=latency", ["delta"]),
        ("signed=wrong", ["gamma"]),
        ("runs=3", ["alpha"]),
        ("from=2024-01-01", ["alpha", "gamma"]),
        ("to=2023-12-31", ["beta"]),
        ("q=nothing+like+it", []),
    ],
)
def test_a_link_shows_what_its_filter_lets_through(board, filters, left):
    assert names(board(f"#{filters}")) == left


def test_typing_filters_and_says_how_many_are_left_and_changes_the_link(board):
    page = board()
    page.get_by_label("Search").fill("beta")
    assert names(page) == ["beta"]
    assert page.locator("#found").inner_text() == "1 of 3 entries by time to accuracy."
    page.get_by_label("Framework").select_option("PyTorch")
    assert names(page) == []
    assert page.evaluate("location.hash") == "#q=beta&framework=PyTorch"
    page.get_by_role("button", name="Reset").click()
    assert len(names(page)) == 3
    assert page.evaluate("location.hash") == ""
    assert page.get_by_label("Search").input_value() == ""


def test_at_another_target_the_ranking_is_computed_again_and_says_what_moved(board):
    page = board("#target=0.8")
    assert names(page) == ["beta", "gamma", "alpha"]
    assert page.locator("td.figure b").all_inner_texts() == ["2.00 s", "5.00 s", "8.00 s"]
    moves = page.locator("#ranking tbody .rank").all_inner_texts()
    assert "up 1 from rank 2" in moves[0]
    assert "in" in moves[1]
    assert "down 2 from rank 1" in moves[2]
    assert "as if the target were 80.00 %" in page.locator("#found").inner_text()
    page.get_by_role("button", name="Back to the rules' target").click()
    assert names(page) == ["alpha", "beta", "gamma"]


def test_the_slider_moves_with_the_keyboard_and_says_its_value_in_words(board):
    page = board()
    slider = page.get_by_role("slider")
    assert slider.get_attribute("aria-valuetext") == "90.00 %"
    slider.focus()
    page.keyboard.press("End")
    assert slider.get_attribute("aria-valuetext") == "95.00 %"
    assert page.locator("td.figure b").all_inner_texts() == ["19.0 s", "never", "never"]
    assert page.evaluate("location.hash") == "#target=0.95"


def test_the_median_counts_runs_that_do_not_arrive_behind_all_others(board):
    page = board()
    at = """([times, threshold]) => { const lb = window.levelbench;
      const shown = lb.timeAt(times.map((t) => t === null ? [] : [0.9, t]), threshold, false,
        {aggregation_rule: "median", drop: 0}); return shown === Infinity ? "never" : shown; }"""
    assert page.evaluate(at, [[1, 2, 3, 4], 0.9]) == 2.5
    assert page.evaluate(at, [[1, 2, 3, None], 0.9]) == 2.5
    assert page.evaluate(at, [[1, 2, None, None], 0.9]) == "never"
    assert page.evaluate(at, [[1, None, None], 0.9]) == "never"
    assert page.evaluate(at, [[5, None, 1], 0.9]) == 5
    # The build has the same figure of the same runs.
    for times in ([1.0, 2.0, 3.0, None], [1.0, 2.0, None, None], [5.0, None, 1.0], [1.0, 2.0, 3.0, 4.0, None, None]):
        figure = aggregate(Times(tuple(times), ()), Aggregation("median", 1))
        assert page.evaluate(at, [times, 0.9]) == ("never" if figure.value is None else figure.value)


def test_an_olympic_mean_drops_the_ends_and_lets_one_failure_be_the_slowest(board):
    page = board()
    at = """(times) => { const steps = times.map((t) => t === null ? [] : [0.9, t]);
      const found = window.levelbench.timeAt(steps, 0.9, false, {aggregation_rule: "olympic", drop: 1});
      return found === Infinity ? "never" : found; }"""
    assert page.evaluate(at, [1, 2, 4, 100]) == 3
    assert page.evaluate(at, [1, 2, 4, None]) == 3
    assert page.evaluate(at, [1, 2, None, None]) == "never"


@pytest.mark.parametrize(
    ("rules", "times"),
    [
        *((Aggregation("olympic", 3, 1, windows=even), [5.0, 9.0, 6.0, 1.0]) for even in ("lower", "upper", "mean")),
        (Aggregation("olympic", 3, 1, windows="upper"), [5.0, 9.0, 6.0, 7.0, None, 4.0]),
        (Aggregation("olympic", 3, 1, windows="upper"), [1.0, 2.0, 9.0]),
        (Aggregation("median", 6, best_of=2), [9.0, 5.0, None, 7.0, 6.0, 8.0]),
    ],
)
def test_windows_and_studies_have_the_same_figure_as_in_the_build(board, rules, times):
    at = """([times, rules]) => window.levelbench.timeAt(
      times.map((t) => t === null ? [] : [0.9, t]), 0.9, false, rules)"""
    facts = {each: getattr(rules, each) for each in ("runs", "drop", "best_of", "windows")}
    assert (
        board().evaluate(at, [times, {**facts, "aggregation_rule": rules.rule}])
        == aggregate(Times(tuple(times), ()), rules).value
    )


def test_divisions_are_ranked_apart_at_the_rules_target_and_at_any_other(visit, tmp_path, by_hand):
    def entry(name, division, seconds):
        steps = [[(0.8, seconds / 2 if name != "late" else 1.0), (0.9, seconds)]]
        figures = {"time": by_hand.figure(seconds, f"{seconds:g} s")}
        return by_hand.entry(name, division=division, figures=figures, steps=steps)

    made = [entry("quick", "open", 5.0), entry("plain", "closed", 20.0), entry("late", "closed", 30.0)]
    site = write_site(tmp_path, filled(by_hand.board([]), made), [])
    page = visit(site / "task.html")
    assert page.locator("th.division").inner_text() == "Division"
    ranks = "[...document.querySelectorAll('#ranking tbody td.rank')].map((each) => each.firstChild.textContent)"
    assert (names(page), page.evaluate(ranks)) == (["plain", "late", "quick"], ["1", "2", "1"])
    page.evaluate(FOLLOW, "#target=0.8")
    assert (names(page), page.evaluate(ranks)) == (["late", "plain", "quick"], ["1", "2", "1"])
    moves = page.locator("#ranking tbody .move").evaluate_all("(each) => each.map((move) => move.title)")
    assert moves == ["up 1 from rank 2", "down 1 from rank 1"]


def test_curves_are_chosen_by_checkbox_and_kept_in_the_link(board):
    page = board()
    page.get_by_role("checkbox", name="Curve of alpha, alpha author").check()
    page.get_by_role("checkbox", name="Curve of beta, beta author").check()
    assert page.locator("#curves path.line:not([d='M0 3H30'])").count() == 4
    assert page.evaluate("location.hash") == "#curves=alpha%2Cbeta"
    page.get_by_role("button", name="Remove beta, beta author").press("Enter")
    assert page.locator("#curves path.line:not([d='M0 3H30'])").count() == 3


ABOUT = (
    "[...document.querySelectorAll('[data-about]')].filter((each) => !each.hidden).map((each) => each.dataset.about)"
)


@pytest.mark.parametrize(
    ("fragment", "about"),
    [
        ("#column=", ["rules", "training"]),
        ("#target=0.8", ["asked", "training"]),
        ("#column=latency", ["rules", "inference"]),
        ("#column=latency&target=0.8", ["rules", "inference"]),
    ],
)
def test_the_note_tells_how_this_column_is_ranked_at_this_target(board, fragment, about):
    assert board(fragment).evaluate(ABOUT) == about


def test_a_column_of_inference_has_no_curves_and_names_its_latency(board):
    page = board("#column=latency&runs=3")
    assert page.locator("#found").inner_text() == "1 of 1 entries by latency (server, 99th percentile)."
    assert page.locator("#ranking thead").inner_text().split() == [
        "Rank", "▲", "Entry", "Latency", "Interval", "Division", "Hardware", "Framework", "Date", "Code", "Notes",
    ]  # fmt: skip
    # No entry has three measurements: a filter that lets nothing through is not offered.
    hidden = [page.locator(where).is_hidden() for where in ("#overlaid", ".field.runs", "#ranking input")]
    assert hidden == [True, True, True]


def test_one_curve_too_many_is_refused_and_said(board):
    page = board()
    page.evaluate("window.levelbench.SERIES = 2")
    for name in ("alpha", "beta", "gamma"):
        page.get_by_role("checkbox", name=f"Curve of {name}").press("Space")
    page.evaluate("window.levelbench.SERIES = 8")
    assert page.evaluate("location.hash") == "#curves=alpha%2Cbeta"
    assert page.locator("#ranking input:checked").count() == 2
    assert "untick one first" in page.locator("#found").inner_text()
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Curve of gamma, gamma author"


@pytest.mark.parametrize(
    "fragment",
    [
        "#page=999",
        "#column=toString&sort=__proto__&from=never",
        "#target=abc&page=-1",
        "#curves=,,nothing",
        "#%E0%A4%A",
    ],
)
def test_a_link_that_makes_no_sense_shows_the_whole_ranking(board, fragment):
    assert names(board(fragment)) == ["alpha", "beta", "gamma"]


def test_the_keyboard_skips_to_the_content_and_finds_the_search(visit, site):
    page = visit(site / "task.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"


def test_every_record_over_time_is_reached_by_the_keyboard(board):
    page = board()
    points = page.locator("[data-progress=time] a")
    points.first.focus()
    assert points.first.get_attribute("aria-label") == "2023-02-03: 20 s, beta, beta author"
    assert page.evaluate("document.activeElement.getAttribute('href')") == "entries/beta.html"


def test_the_chosen_colours_are_remembered(visit, site):
    page = visit(site / "index.html")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    toggle = page.get_by_role("button", name="Colours: system")
    toggle.click()
    page.get_by_role("button", name="Colours: light").click()
    dark = page.evaluate(background)
    assert dark != light
    page.goto((site / "task.html").as_uri())
    assert page.evaluate(background) == dark
    page.evaluate("localStorage.clear()")


SEEN = "[...document.querySelectorAll('button,input,select')].filter((each) => each.checkVisibility()).length"


def test_without_a_script_the_ranking_is_there_and_no_dead_control_is(visit, tab, site):
    _, _, debugger = tab
    debugger.send("Emulation.setScriptExecutionDisabled", {"value": True})
    page = visit(site / "task.html")
    assert page.evaluate("document.documentElement.dataset.ready ?? null") is None
    assert names(page) == ["alpha", "beta", "gamma"]
    assert page.evaluate(SEEN) == 0
    debugger.send("Emulation.setScriptExecutionDisabled", {"value": False})


PRINTED = """[
  ["filters", "slider", "tools"].every((id) => ![...document.getElementById(id).querySelectorAll("button,input,select")]
    .some((each) => each.checkVisibility())),
  document.querySelector("td.code").checkVisibility(),
  getComputedStyle(document.querySelector("td.hardware")).overflowWrap,
  document.querySelector("#rules").innerText.includes("https://example.org/rules"),
]"""


def test_on_paper_there_are_no_controls_and_no_addresses_in_the_table(board):
    page = board()
    page.emulate_media(media="print")
    hidden, code, wrap, source = page.evaluate(PRINTED)
    page.emulate_media(media="screen")
    assert (hidden, code, wrap, source) == (True, False, "break-word", True)


@pytest.mark.parametrize("name", ["index.html", "task.html", "entries/alpha.html"])
def test_no_page_is_wider_than_a_small_phone(visit, site, name):
    page = visit(site / name)
    page.set_viewport_size({"width": 320, "height": 600})
    wide = page.evaluate("document.documentElement.scrollWidth")
    page.set_viewport_size({"width": 1280, "height": 800})
    assert wide <= 320


AXE = """async (options) => (await axe.run({preload: false, resultTypes: ["violations"], ...options})).violations"""


@pytest.mark.parametrize("name", ["index.html", "task.html", "entries/alpha.html"])
def test_axe_finds_nothing_serious(visit, site, name):
    base = pytest.importorskip("axe_playwright_python.base")
    page = visit(site / name, "#curves=alpha,beta" if name == "task.html" else "")
    page.evaluate(base.AXE_SCRIPT)
    found = page.evaluate(AXE, {})
    page.emulate_media(color_scheme="dark")
    found += page.evaluate(AXE, {"runOnly": ["color-contrast"]})
    assert [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in found] == []


def test_a_long_board_is_shown_in_pages(board):
    page = board()
    page.evaluate("window.levelbench.PAGE = 2")
    assert names(board()) == ["alpha", "beta"]
    page.get_by_role("button", name="Last page").click()
    assert names(page) == ["gamma"]
    assert page.locator("#pager span").inner_text() == "3–3 of 3"
    page.get_by_label("Search").fill("a")
    assert names(page) == ["alpha", "beta"]
    page.evaluate("window.levelbench.PAGE = 200")


def test_on_paper_all_rows_are_there(board):
    page = board()
    page.evaluate("window.levelbench.PAGE = 2")
    assert names(board()) == ["alpha", "beta"]
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert names(page) == ["alpha", "beta", "gamma"]
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert names(page) == ["alpha", "beta"]
    page.evaluate("window.levelbench.PAGE = 200")


@pytest.fixture(scope="module")
def apart(tmp_path_factory, by_hand):
    """A board whose steps are in a file of their own."""
    folder = tmp_path_factory.mktemp("apart")
    board = by_hand.board([by_hand.entry("a")], steps="data/task-steps.js")
    write_site(folder, board, [])
    (folder / board.steps).write_bytes(steps_script(joined_steps(board)))
    return folder


ASKED = "document.querySelectorAll('script[src$=\"task-steps.js\"]').length"


def test_steps_in_a_file_of_their_own_are_asked_for_when_the_slider_is_touched(visit, apart):
    page = visit(apart / "task.html")
    assert page.evaluate(ASKED) == 0
    page.get_by_role("slider").press("Home")
    page.locator("#found", has_text="as if the target were").wait_for()
    # As the page computes it, where the ranking had "10 s".
    assert page.locator("td.figure b").inner_text() == "10.0 s"
    assert page.evaluate(ASKED) == 1


def test_a_link_to_curves_asks_for_the_steps_at_once(visit, apart):
    page = visit(apart / "task.html", "?again#curves=a")
    page.locator("#curves path.line:not([d='M0 3H30'])").wait_for()
    assert page.evaluate(ASKED) == 1


@pytest.fixture(scope="module")
def hostile_site(tmp_path_factory, by_hand):
    """A board on which every text is an attack, one entry each."""
    entries = [by_hand.hostile(text, f"h{at}") for at, text in enumerate(PAYLOADS)]
    board = by_hand.board(
        entries, title=PAYLOADS[1], task_title=PAYLOADS[1], progress={"time": [("2024-05-01", 10.0, 1)]}
    )
    cards = [card_of(board, [Leader("time", text, text, text, text)]) for text in PAYLOADS]
    missing = [NotShown(text, [text]) for text in PAYLOADS]
    # What an attack may break out of is the same for all of them but an address: its start counts.
    attacks = [" ".join(PAYLOADS), *ADDRESSES]
    submissions = [(by_hand.hostile(text, f"e{at}"), by_hand.submission(text)) for at, text in enumerate(attacks)]
    return write_site(tmp_path_factory.mktemp("hostile"), board, submissions, cards, missing)


LOOK = """([elements, unsafe]) => {
  for (const each of document.querySelectorAll("details")) each.open = true;
  return [window.xss ?? ({}).xss ?? null, document.querySelectorAll(elements).length,
    document.querySelectorAll(unsafe).length, document.querySelector("h1").textContent, document.body.textContent];
}"""


def looked_at(page):
    """The heading and the text of a page on which nothing was executed and nothing became an element."""
    executed, elements, links, heading, text = page.evaluate(LOOK, [ELEMENTS, UNSAFE])
    assert (executed, elements, links) == (None, 0, 0)
    return heading, text


USED = """(framework) => {
  for (const at of [0, 1, 2]) document.querySelectorAll("#ranking input[type=checkbox]")[at].click();
  const enter = (control, value) => {
    control.value = value;
    control.dispatchEvent(new Event("input", {bubbles: true}));
  };
  enter(document.querySelector("#f-framework"), framework);
  const left = [...document.querySelectorAll(".entry a")].map((each) => each.innerText);
  document.querySelector("#filters button:last-child").click();
  enter(document.querySelector("#target"), "0");
  return left;
}"""


def test_an_attack_in_any_text_of_a_board_is_shown_as_text(visit, hostile_site):
    page = visit(hostile_site / "task.html", unguarded=True)
    assert page.locator("#ranking tbody tr").count() == len(PAYLOADS)
    assert page.evaluate(USED, PAYLOADS[4]) == [PAYLOADS[4]]
    _, everything = looked_at(page)
    assert all(text in everything for text in PAYLOADS)


def test_an_attack_in_the_address_is_no_markup(visit, hostile_site):
    text = "%3Cimg%20src%3Dx%20onerror%3Dwindow.xss%3D1%3E"
    parts = ("q", "column", "framework", "hardware", "sort", "target", "curves", "from")
    fragment = "&".join(f"{name}={text}" for name in parts)
    looked_at(visit(hostile_site / "task.html", f"#{fragment}", unguarded=True))


def test_an_attack_in_any_text_of_the_index_is_shown_as_text(visit, hostile_site):
    page = visit(hostile_site / "index.html", unguarded=True)
    _, everything = looked_at(page)
    assert all(everything.count(text) >= 3 for text in PAYLOADS)


def test_an_attack_in_any_text_of_an_entry_is_shown_as_text(visit, hostile_site):
    page = visit(hostile_site / "entries/e0.html", unguarded=True)
    for at, text in enumerate([" ".join(PAYLOADS), *ADDRESSES]):
        if at:
            page.goto((hostile_site / f"entries/e{at}.html").as_uri())
        heading, everything = looked_at(page)
        assert heading == text
        assert everything.count(text) > 20


def test_the_file_that_a_page_carries_is_saved_under_the_entrys_name(shared, by_hand, tmp_path):
    entry, source = by_hand.entry("alpha", page="alpha.html"), '{"model": "<b>α</b>"}\n'.encode()
    text = pages.entry_page(by_hand.board([entry]), entry, by_hand.submission(), [], source=source)
    (tmp_path / "alpha.html").write_text(text)
    page = shared.new_page()
    page.goto((tmp_path / "alpha.html").as_uri())
    with page.expect_download() as begun:
        page.get_by_role("link", name="JSON", exact=True).click()
    assert begun.value.suggested_filename == "alpha.json"
    assert Path(begun.value.path()).read_bytes() == source
    page.close()
