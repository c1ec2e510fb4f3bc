"""How long a leaderboard's page of ten thousand entries takes in a browser: load, sort, filter, move the target.

The steps of the runs are in a script of their own, as the build puts them there; "the steps" is how long that one takes
from the first touch of the slider on. The goal is one second each. Run it on a quiet machine:
``python benchmarks/board_pages.py [ENTRIES]``; it needs playwright and a chromium (``CHROMIUM=/path``; Debian's by
default). It prints the median and the worst of five.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from levelbench.competition.site import (
    BOARD_SCHEMA,
    BoardPayload,
    EntryPayload,
    FigurePayload,
    FindingCounts,
    PriceFacts,
    RulesetFacts,
)
from levelbench.competition.site.boards import joined_steps, script, steps_script
from levelbench.competition.site.pages import task_page
from levelbench.competition.site.parts import assets
from levelbench.records.schema import Target

ROUNDS = 5
RUNS, POINTS = 5, 16
ACTIONS = {
    "sort by date": "document.querySelector('th.date button').click()",
    "sort by entry": "document.querySelector('th.entry button').click()",
    "filter by words": "input('#f-q', 'model 77')",
    "no filter": "input('#f-q', '')",
    "another target": "input('#target', String(40 + round))",
    "the rules' target": "document.querySelector('#slider button').click()",
    "next page": "document.querySelector('[aria-label=\"Next page\"]').click()",
}
TIMED = """async ([code, round]) => {
  const input = (where, value) => {
    const control = document.querySelector(where);
    control.value = value;
    control.dispatchEvent(new Event("input", {bubbles: true}));
  };
  const begin = performance.now();
  new Function("input", "round", code)(input, round);
  document.body.getBoundingClientRect();
  return performance.now() - begin;
}"""


STEPS = """() => new Promise((done) => {
  const begin = performance.now();
  const take = window.levelbench.take;
  window.levelbench.take = (...given) => {
    take(...given);
    done(performance.now() - begin);
  };
  document.querySelector("#target").focus();
})"""


def entry(at: int, chance: random.Random) -> EntryPayload:
    """One made-up entry of five runs, with curves of as many points as a page gets at most."""
    base = chance.lognormvariate(6, 1.5)
    steps = []
    for _ in range(RUNS):
        pace = base * chance.uniform(0.8, 1.2)
        best = chance.uniform(0.93, 0.97)
        pairs = ((round(best * (1 - 0.7**k), 5), round(pace * k / 12, 4)) for k in range(1, POINTS + 1))
        steps.append([number for pair in pairs for number in pair])
    figure = FigurePayload(
        base, base * 0.9, base * 1.1, at + 1, at % 3 == 0, f"{base:.3g} s [1, 2]", "median of 5 runs"
    )
    cost = FigurePayload(base / 1000, base / 1100, base / 900, at + 1, False, f"${base / 1000:.3g}", "median of 5 runs")
    return EntryPayload(
        id=f"task/training/{at}", slug=f"entry-{at}", page=f"entries/entry-{at}.html", model=f"model {at}",
        author=f"author {at % 321}", organisation="", framework=f"framework {at % 12}", hardware=f"machine {at % 57}",
        date=f"20{18 + at % 8}-{1 + at % 12:02d}-{1 + at % 28:02d}", division="open", mode="training",
        code_url=f"https://example.org/{at}", price=PriceFacts(3.06, "https://example.org/prices", "2026-01-01"),
        signed="unsigned", figures={"time": figure, "cost": cost}, n=RUNS, reached=RUNS, reached_text="5/5",
        single_run=False, expected_with_restarts_s=base, best_s=base, flags=[], findings=FindingCounts(), origin=None,
        steps=steps, best_quality=max(run[-2] for run in steps),
    )  # fmt: skip


def write_site(folder: Path, count: int) -> BoardPayload:
    chance = random.Random(1)
    rules = RulesetFacts(
        "rules", "rules", "1", "2026-01-01", "", "wall", "first", "the median", "median", 5, 0, "significant"
    )
    board = BoardPayload(
        BOARD_SCHEMA, "Ten thousand", "2026-01-01", "task", "task.html", "data/task.js", rules, "task", "A task",
        Target("top1", 0.92), ["training"], [entry(at, chance) for at in range(count)], {},
        "data/task-steps.js",
    )  # fmt: skip
    for name, content in assets().items():
        (folder / "assets").mkdir(exist_ok=True)
        (folder / "assets" / name).write_bytes(content)
    (folder / "data").mkdir()
    (folder / board.data).write_bytes(script(board))
    (folder / board.steps).write_bytes(steps_script(joined_steps(board)))
    begin = time.perf_counter()
    (folder / board.page).write_text(task_page(board))
    made_s = time.perf_counter() - begin
    sizes = [(folder / name).stat().st_size / 2**20 for name in (board.page, board.data, board.steps)]
    print("page made in {:.2f} s, {:.1f} MiB, data {:.1f} MiB, steps {:.1f} MiB".format(made_s, *sizes))
    return board


def load(context: Any, folder: Path, rounds: int) -> tuple[Any, list[float]]:
    """The page after the last of some loads, and when the ranking was there each time, in seconds."""
    seconds = []
    for at in range(rounds):
        page = context.new_page()
        page.goto((folder / "task.html").as_uri())
        seconds.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000)
        if at + 1 < rounds:
            page.close()
    return page, seconds


def show(name: str, seconds: list[float]) -> None:
    print(f"{name:20} median {statistics.median(seconds):6.3f} s   worst {max(seconds):6.3f} s")


def main() -> int:
    from playwright.sync_api import sync_playwright

    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        write_site(Path(folder), count)
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1280, "height": 900}, bypass_csp=True)
        print(f"{count:,} entries of {RUNS} runs")
        page, loads = load(context, Path(folder), ROUNDS)
        show("load", loads)
        show("the steps", [page.evaluate(STEPS) / 1000])
        for name, code in ACTIONS.items():
            show(name, [page.evaluate(TIMED, [code, at]) / 1000 for at in range(ROUNDS)])
        browser.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
