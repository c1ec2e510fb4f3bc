"""The pages in headless Chromium: keyboard, screen readers and phones; what an author must not be able to do."""

from pathlib import Path

import pytest
from tests.browsing import violations_by_size_and_scheme
from tests.competition.site.browsing import FOLLOW, names, write_site

from levelbench.competition.site import Leader, NotShown
from levelbench.competition.site.boards import filled, joined_steps, steps_script
from levelbench.competition.site.pages import entry_page

pytest.importorskip("playwright.sync_api")

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


def test_divisions_are_ranked_apart_at_the_rules_target_and_at_any_other(visit, tmp_path, by_hand):
    def entry(name, division, seconds):
        steps = [[(0.8, seconds / 2 if name != "late" else 1.0), (0.9, seconds)]]
        figures = {"time": by_hand.figure(seconds, f"{seconds:g} s")}
        return by_hand.entry(name, division=division, figures=figures, steps=steps)

    made = [entry("quick", "open", 5.0), entry("plain", "closed", 20.0), entry("late", "closed", 30.0)]
    page = visit(write_site(tmp_path, filled(by_hand.board([]), made), []) / "task.html")
    assert page.locator("th.division").inner_text() == "Division"
    ranks = "[...document.querySelectorAll('#ranking tbody td.rank')].map((each) => each.firstChild.textContent)"
    assert (names(page), page.evaluate(ranks)) == (["plain", "late", "quick"], ["1", "2", "1"])
    page.evaluate(FOLLOW, "#target=0.8")
    assert (names(page), page.evaluate(ranks)) == (["late", "plain", "quick"], ["1", "2", "1"])
    moves = page.locator("#ranking tbody .move").evaluate_all("(each) => each.map((move) => move.title)")
    assert moves == ["up 1 from rank 2", "down 1 from rank 1"]


def test_divisions_of_any_name_come_in_the_order_of_the_rules_and_are_filtered_by(visit, tmp_path, by_hand):
    board = by_hand.board([])
    board.ruleset.divisions = ["small models", "anything"]
    made = [by_hand.entry("free", division="anything"), by_hand.entry("small", division="small models")]
    page = visit(write_site(tmp_path, filled(board, made), []) / "task.html")
    assert names(page) == ["small", "free"]
    assert page.locator("#f-division option").all_inner_texts() == ["any", "small models", "anything"]
    page.evaluate(FOLLOW, "#division=anything")
    assert names(page) == ["free"]


def test_more_answers_a_second_come_first(visit, tmp_path, by_hand):
    def entry(name, rate, low, high):
        text = f"{rate:g}/s [{low:g}, {high:g}]"
        figures = {"throughput": by_hand.figure(rate, text, low=low, high=high)}
        return by_hand.entry(name, mode="inference", n=3, figures=figures, steps=[])

    made = [entry("slow", 90.0, 80.0, 95.0), entry("close", 198.0, 190.0, 201.0), entry("fast", 200.0, 197.0, 203.0)]
    board = filled(by_hand.board([], compared="offline, samples a second"), made)
    page = visit(write_site(tmp_path, board, []) / "task.html")
    ranks = "[...document.querySelectorAll('#ranking tbody td.rank')].map((each) => each.textContent)"
    assert (names(page), page.evaluate(ranks)) == (["fast", "close", "slow"], ["1", "2", "3"])
    assert page.locator("#found").inner_text() == "3 of 3 entries by throughput (offline, samples a second)."
    assert page.locator("#slider").is_hidden()
    page.evaluate(FOLLOW, "#sort=figure")
    assert names(page) == ["slow", "close", "fast"]


def test_the_keyboard_skips_to_the_content_and_finds_the_search(visit, shown):
    page = visit(shown / "task.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"


def test_the_chosen_colours_are_remembered(visit, shown):
    page = visit(shown / "index.html")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    toggle = page.get_by_role("button", name="Colours: system")
    toggle.click()
    page.get_by_role("button", name="Colours: light").click()
    dark = page.evaluate(background)
    assert dark != light
    page.goto((shown / "task.html").as_uri())
    assert page.evaluate(background) == dark
    page.evaluate("localStorage.clear()")


SEEN = "[...document.querySelectorAll('button,input,select')].filter((each) => each.checkVisibility()).length"


def test_without_a_script_the_ranking_is_there_and_no_dead_control_is(visit, tab, shown):
    _, _, debugger = tab
    debugger.send("Emulation.setScriptExecutionDisabled", {"value": True})
    page = visit(shown / "task.html")
    assert page.evaluate("document.documentElement.dataset.ready ?? null") is None
    assert names(page) == ["alpha", "beta", "gamma"]
    assert page.evaluate(SEEN) == 0
    debugger.send("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("name", ["index.html", "task.html", "entries/alpha.html"])
def test_no_page_is_wider_than_a_small_phone(visit, shown, name):
    page = visit(shown / name)
    page.set_viewport_size({"width": 320, "height": 600})
    wide = page.evaluate("document.documentElement.scrollWidth")
    page.set_viewport_size({"width": 1280, "height": 800})
    assert wide <= 320


@pytest.mark.parametrize("name", ["index.html", "task.html", "entries/alpha.html"])
def test_axe_finds_nothing_in_any_size_and_colour_scheme(visit, shown, name):
    page = visit(shown / name, "#curves=alpha,beta" if name == "task.html" else "")
    found = violations_by_size_and_scheme(page)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 800})
    assert found == []


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
    cards = [(board, [Leader("time", text, text, text, text)]) for text in PAYLOADS]
    missing = [NotShown(text, [text]) for text in PAYLOADS]
    # All attacks break out of the same places, except addresses, whose beginning counts.
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


def test_an_attack_in_the_address_is_not_markup(visit, hostile_site):
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
    text = entry_page(by_hand.board([entry]), entry, by_hand.submission(), [], source=source)
    (tmp_path / "alpha.html").write_text(text)
    page = shared.new_page()
    page.goto((tmp_path / "alpha.html").as_uri())
    with page.expect_download() as begun:
        page.get_by_role("link", name="JSON", exact=True).click()
    assert begun.value.suggested_filename == "alpha.json"
    assert Path(begun.value.path()).read_bytes() == source
    page.close()
