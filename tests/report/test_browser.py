import dataclasses
import json
import re
import subprocess

import pytest
from msgspec import structs
from tests.browsing import CHROMIUM, SCHEMES, SIZES, launched, violations
from tests.report.pages import PAYLOADS, compared, needs_matplotlib

from levelbench.measure.verdict import verdict
from levelbench.report.markup import style_sheet, tag, to_html
from levelbench.report.numbers import estimate_text
from levelbench.report.page import write_index, write_report
from levelbench.report.tables import Column, ColumnKind, Number, Table, listing

ALONE = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--enable-logging=stderr", "--v=0", "--virtual-time-budget=2000"),
)


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM.exists(), reason="no /usr/bin/chromium to open the page in")
def test_a_browser_shows_the_page_without_an_error_and_not_wider_than_a_phone(two_arms, tmp_path):
    (a, _), (b, _) = two_arms
    page = write_report(two_arms, [(a.label, b.label, verdict(a.times(), b.times()))], tmp_path / "report.html")
    # The frame's own page may run scripts, and reads how wide the report in it would like to be.
    (tmp_path / "frame.html").write_text(
        '<body><iframe src="report.html" width="360" height="800" style="border:0"></iframe><script>'
        "onload = () => { const page = document.querySelector('iframe').contentDocument;"
        "document.body.dataset.wide = page.documentElement.scrollWidth;"
        "document.body.dataset.seen = page.querySelectorAll('figure svg').length; }</script>"
    )
    done = subprocess.run(
        [CHROMIUM, *ALONE, "--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
         (tmp_path / "frame.html").as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr
    assert int(re.search(r'data-wide="(\d+)"', done.stdout)[1]) <= 360
    assert int(re.search(r'data-seen="(\d+)"', done.stdout)[1]) >= 4
    assert page.exists()


@pytest.fixture(scope="module")
def browser():
    yield from launched()


@pytest.fixture(scope="module")
def report(two_arms, tmp_path_factory):
    """A report with a verdict and five doubts."""
    doubts = [
        f"doubt: {at} of 5 runs of {group.label}: other programs kept 0.9 of 2 cores busy during the measurement: stop "
        "them and measure again, or set OMP_NUM_THREADS=1 for everything that is compared"
        for at, group in enumerate([two_arms[at % 2][0] for at in range(5)])
    ]
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(two_arms, compared(two_arms), path, caveats=doubts, attributions=["forward: 0.04 s less"])


@pytest.fixture(scope="module")
def folder(make, group, two_arms, one_missed, tmp_path_factory):
    """A report on two tasks of which one missed, failed and was interrupted, and an index of both."""
    other = [record for _, records in one_missed for record in records]
    groups = [*two_arms, *group([rename(each, "fashion-mnist") for each in other])]
    place = tmp_path_factory.mktemp("folder")
    write_report(groups, compared(two_arms), place / "both.html")
    write_index(groups, compared(two_arms), place / "index.html", ["task-digits.html", "task-fashion-mnist.html"])
    return place


def rename(record, task):
    specification = structs.replace(record.header.specification, task=task)
    return dataclasses.replace(record, header=structs.replace(record.header, specification=specification, key=task))


@pytest.fixture
def visit(browser):
    """Open a file in a window of this size and colour scheme; at the end, no error was logged."""
    contexts, wrong = [], []

    def visit(path, width=1280, height=900, scheme="light", scripts=True):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, java_script_enabled=scripts
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: wrong.append(said.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(("file:", "data:")) else wrong.append(asked.url))
        page.goto(path.as_uri())
        return page

    yield visit
    for each in contexts:
        each.close()
    assert wrong == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size[0]))
@pytest.mark.parametrize("name", ["report", "both", "index"])
def test_axe_finds_nothing_on_a_page_of_which_everything_is_open(visit, report, folder, name, size, scheme):
    page = visit(report if name == "report" else folder / f"{name}.html", *size, scheme)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_verdict_interval_and_doubts_are_on_a_phones_first_screen(visit, report):
    page = visit(report, 390, 844)
    assert "[" in page.locator(".verdict").inner_text()
    ends = [page.locator(each).first.bounding_box() for each in (".verdict", ".doubts", ".more > summary")]
    assert all(end["y"] + end["height"] <= 844 for end in ends)


def test_five_verdicts_and_a_doubt_are_on_a_phones_first_screen(visit, make, group, tmp_path, undrawn):
    records = [
        make(settings={"lr": at / 10}, seed=seed, speed_s=0.03 + at / 100) for at in range(6) for seed in (1, 2, 3)
    ]
    groups = group(records)
    (base, _), *others = groups
    verdicts = [(base.label, each.label, verdict(base.times(), each.times())) for each, _ in others]
    page = visit(write_report(groups, verdicts, tmp_path / "report.html", caveats=["doubt: busy"]), 390, 844)
    assert page.locator(".verdict").count() == 5
    assert page.get_by_text("Compared with digits[lr=0.0] (n = 3 + 3").count() == 1
    box = page.locator(".doubts li").first.bounding_box()
    assert box["y"] + box["height"] <= 844


def test_the_main_table_is_not_clipped(visit, report):
    for width, height in SIZES:
        box = visit(report, width, height).locator(".scroll").first
        assert box.evaluate("each => each.scrollWidth <= each.clientWidth"), width


@pytest.mark.parametrize("size", SIZES[1:], ids=lambda size: str(size[0]))
@pytest.mark.parametrize("name", ["report", "both"])
def test_no_table_of_an_opened_part_scrolls_sideways_on_a_phone_or_tablet(visit, report, folder, name, size):
    page = visit(report if name == "report" else folder / "both.html", *size)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    boxes = page.locator("details .scroll")
    assert boxes.count() >= 4
    assert boxes.evaluate_all("all => all.filter((each) => each.scrollWidth > each.clientWidth).length") == 0


def test_a_table_of_many_intervals_and_one_of_long_names_wrap_instead_of_scrolling(visit, tmp_path):
    names = [f"digits[framework=numpy,lr=0.0{at},momentum=0.9,hidden=128]" for at in range(1, 4)]
    numbers = [Column(f"n{at}", "time to accuracy", ColumnKind.TIME_S) for at in range(11)]
    wide = Table.of("a", "A", names, (Column("of", "runs of"), str), *((each, lambda _: SPREAD) for each in numbers))
    named = listing("b", "B", ["what", *names], [["load", "1", "2", "3"]])
    path = tmp_path / "page.html"
    main = tag("main", to_html(wide), to_html(named))
    path.write_text(f"<!doctype html><style>{style_sheet()}</style>{main}", encoding="utf-8")
    for box in visit(path).locator(".scroll").all():
        assert box.evaluate("each => each.scrollWidth <= each.clientWidth")


SPREAD = Number(79.665, 79.66412, 79.66868)


def test_rows_are_cards_on_a_phone_or_tablet_and_rows_of_a_table_on_a_desk(visit, report):
    shown = "getComputedStyle(document.querySelector('.cards tr td')).display"
    headers = "getComputedStyle(document.querySelector('.cards thead')).display"
    desk = visit(report)
    for width, height in ((390, 844), (768, 1024)):
        page = visit(report, width, height)
        assert (page.evaluate(shown), page.evaluate(headers)) == ("flow-root", "none")
    assert (desk.evaluate(shown), desk.evaluate(headers)) == ("table-cell", "table-header-group")


@needs_matplotlib
def test_without_scripts_the_drawings_are_there_and_no_dead_control_is(visit, report):
    page = visit(report, scripts=False)
    assert page.locator("figure .drawing svg").count() == 4
    assert all(each.is_visible() for each in page.locator("figure .drawing").all())
    assert page.locator("button, input").count() == 0


def plot_on(page):
    """Where the first plot is in the window."""
    plot = page.locator(".live .u-over").first
    plot.scroll_into_view_if_needed()
    return plot.bounding_box()


def test_the_pointer_reads_the_run_that_it_is_near(visit, report):
    page = visit(report)
    box = plot_on(page)
    said = page.locator(".live p").first
    before = said.inner_text()
    for share in (0.2, 0.4, 0.6, 0.8):
        page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * share)
        if said.inner_text() != before:
            break
    assert re.match(r"digits\[framework=\w+\], (median|seed \d.*): validation accuracy 0\.\d+ at ", said.inner_text())


PIXELS = "[...document.querySelector('.live').querySelectorAll('canvas')].map((each) => each.toDataURL())"


def becomes(page, pixels, *, other=False):
    """Wait until the first plot shows ``pixels``, or something else."""
    page.wait_for_function(
        f"([old, other]) => (JSON.stringify({PIXELS}) !== old) === other",
        arg=[json.dumps(pixels, separators=(",", ":")), other],
    )


def test_a_drag_zooms_and_see_all_goes_back(visit, report):
    page = visit(report)
    box, whole = plot_on(page), page.evaluate(PIXELS)
    page.mouse.move(box["x"] + 60, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 180, box["y"] + 140)
    page.mouse.up()
    page.mouse.move(0, 0)
    becomes(page, whole, other=True)
    page.get_by_role("button", name="See all").first.click()
    becomes(page, whole)


def test_a_run_is_hidden_and_shown_again_by_its_checkbox(visit, report):
    page = visit(report)
    whole = page.evaluate(PIXELS)
    page.get_by_text("Show and hide runs").first.click()
    box = page.get_by_role("checkbox", name=re.compile("seed 3, run")).first
    box.uncheck()
    becomes(page, whole, other=True)
    box.check()
    becomes(page, whole)


def test_all_runs_of_a_group_are_hidden_at_once(visit, report):
    page = visit(report)
    page.get_by_text("Show and hide runs").first.click()
    page.get_by_role("checkbox", name="all of its runs").first.uncheck()
    runs = page.locator(".live fieldset").first.get_by_role("checkbox", name=re.compile("seed"))
    assert [each.is_checked() for each in runs.all()] == [False] * 5


@needs_matplotlib
def test_a_mark_says_its_run_and_time_to_the_pointer_with_and_without_scripts(visit, report, two_arms):
    (group, _), _ = two_arms
    run = group.runs[0]
    said = f"{group.label}, seed {run.seed}, run {run.id[:8]}: {estimate_text(run.time_to_accuracy_s, None, None)}"
    still = visit(report, scripts=False)
    assert said in still.locator("svg use > title").all_text_contents()
    page = visit(report)
    page.locator(f"svg use[data-run*='{run.id[:8]}']").hover(force=True)
    assert page.locator("figure", has_text="Time to accuracy on").locator(".live p").inner_text() == said


@needs_matplotlib
def test_the_bar_of_a_phase_says_its_seconds_and_share(visit, report):
    page = visit(report)
    figure = page.locator("figure", has_text="Where the time went")
    figure.locator("[data-run] path").first.hover(force=True)
    assert re.fullmatch(r"digits\[framework=\w+\], \w+: [\d.]+ m?s, [\d.]+ %", figure.locator(".live p").inner_text())


@needs_matplotlib
def test_the_marks_of_a_run_and_of_a_group_are_hidden_and_shown_again(visit, report, two_arms):
    (group, _), _ = two_arms
    page = visit(report)
    figure = page.locator("figure", has_text="Time to accuracy on")
    mark = figure.locator(f"[data-run*='{group.runs[0].id[:8]}']")
    marks = figure.locator(f"[data-group='{group.label}']")
    figure.get_by_text("Show and hide runs").click()
    figure.get_by_role("checkbox", name=group.runs[0].id[:8]).uncheck()
    assert (mark.is_visible(), marks.last.is_visible()) == (False, True)
    figure.get_by_role("checkbox", name="all of it").first.uncheck()
    displays = "all => all.map((each) => getComputedStyle(each).display)"
    assert set(marks.evaluate_all(displays)) == {"none"}
    figure.get_by_role("checkbox", name="all of it").first.check()
    assert set(marks.evaluate_all(displays)) == {"inline"}


def test_the_curves_follow_the_colour_scheme(visit, report):
    page = visit(report)
    light = page.evaluate(PIXELS)
    page.emulate_media(color_scheme="dark")
    becomes(page, light, other=True)


def test_no_label_becomes_markup_when_the_script_shows_it(visit, make, group, tmp_path, undrawn):
    words = " ".join(PAYLOADS)
    groups = group(
        [make(task=words, framework=name, settings={words: words}, seed=at) for name in "ab" for at in (1, 2)]
    )
    page = visit(write_report(groups, compared(groups), tmp_path / "report.html"))
    assert page.locator(".live fieldset").count() == 4
    assert page.locator("iframe, img, main script").count() == 0
