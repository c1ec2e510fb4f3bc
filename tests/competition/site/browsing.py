"""A small site to open in a browser, and helpers to open and read its pages."""

from __future__ import annotations

from tests.competition.site.by_hand import board as board_of
from tests.competition.site.by_hand import entry, figure, submission

from levelbench.competition.rulesets import InferenceRules
from levelbench.competition.site import FindingCounts, Leader, NotShown, OriginFacts
from levelbench.competition.site.boards import script
from levelbench.competition.site.index import index_page
from levelbench.competition.site.pages import entry_page, task_page
from levelbench.competition.site.parts import assets

__all__ = ["FOLLOW", "names", "small_site", "watched", "write_site"]

FOLLOW = """(fragment) => new Promise((done) => {
  addEventListener("hashchange", done, {once: true});
  location.hash = `${fragment}&visit=${Math.random()}`;
})"""


def watched(context, wrong):
    """A new page that adds to ``wrong`` what it logs and what it asks of the network."""
    page = context.new_page()
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda asked: None if asked.url.startswith("file:") else wrong.append(asked.url))
    return page


def write_site(folder, board, submissions, cards=(), not_shown=()):
    for name, content in assets().items():
        (folder / "assets").mkdir(exist_ok=True)
        (folder / "assets" / name).write_bytes(content)
    (folder / "data").mkdir()
    (folder / "entries").mkdir()
    (folder / board.data).write_bytes(script(board))
    (folder / board.page).write_text(task_page(board))
    for shown, source in submissions:
        (folder / shown.page).write_text(entry_page(board, shown, source, []))
    index = index_page(board.title, board.generated, len(board.entries), cards, not_shown=not_shown)
    (folder / "index.html").write_text(index)
    return folder


def names(page):
    return page.evaluate("[...document.querySelectorAll('#ranking tbody .entry a')].map((each) => each.innerText)")


def small_site(folder):
    """Alpha is first at 90 %, beta at 80 %; gamma never gets to 90 %, and delta answers."""
    alpha = entry(
        "alpha", framework="PyTorch", signed="signed", n=3, reached=3, single_run=False,
        figures={"time": figure(10.0, "10 s [9, 11]", 1, low=9.0, high=11.0), "cost": figure(0.01, "$0.01", 2)},
        steps=[[(0.5, 1.0), (0.8, time - 2), (0.9, time), (0.95, time + 9)] for time in (9.0, 10.0, 11.0)],
    )  # fmt: skip
    beta = entry(
        "beta", framework="JAX", hardware="TPU", date="2023-02-03", price=None, findings=FindingCounts(0, 2),
        figures={"time": figure(20.0, "20 s", 2), "cost": figure(None, "–", None, note="no price is stated")},
        steps=[[(0.5, 1.0), (0.8, 2.0), (0.9, 20.0)]],
    )  # fmt: skip
    gamma = entry(
        "gamma", reached=0, signed="wrong", origin=OriginFacts("dawnbench", "x.json", ["odd"]),
        figures={"time": figure(None, "–", None, note="no run arrived"), "cost": figure(0.005, "$0.005", 1)},
        steps=[[(0.5, 1.0), (0.8, 5.0)]],
    )  # fmt: skip
    delta = entry(
        "delta", mode="inference", division="closed", n=0, reached=0, steps=[],
        figures={"latency": figure(0.001, "1 ms"), "inference_cost": figure(1.0, "$1")},
    )  # fmt: skip
    entries = [gamma, beta, alpha, delta]
    board = board_of(
        entries,
        inference=InferenceRules(["multi-stream"], threshold=0.8),
        compared="multi-stream, 99th percentile",
        progress={"time": [("2023-02-03", 20.0, 1), ("2024-05-01", 10.0, 2)]},
    )
    card = (board, [Leader("time", "alpha", "alpha author", "10 s", alpha.page)])
    missing = [NotShown("task/training/broken.json", ["no JSON. Write it again"])]
    return write_site(folder, board, [(alpha, submission(notes="Read me."))], [card], missing)
