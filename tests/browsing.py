"""Headless Chromium for tests of pages, and what axe says about an open page.

python -m tests.browsing build/site [PATTERN]   every page of the built site, or those that match, for a desk and a
                                                phone, light and dark; ends in 1 if axe finds a violation
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
import pytest

CHROMIUM = Path("/usr/bin/chromium")
QUIET = ["--no-sandbox", "--disable-gpu", "--in-process-gpu", "--renderer-process-limit=1", "--process-per-site"]
SIZES = [(1280, 900), (768, 1024), (390, 844)]
SCHEMES = ["light", "dark"]


def launched():
    """A fixture's body: a browser, or a skip that says what is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM} to open the pages in")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=QUIET)
        yield browser
        browser.close()


def violations(page, **options):
    """The rules that axe finds broken on ``page``, each with the first places."""
    base = pytest.importorskip("axe_playwright_python.base", reason="axe-playwright-python is not installed")
    if not page.evaluate("'axe' in window"):
        page.evaluate(base.AXE_SCRIPT)
    run = "async (options) => (await axe.run({preload: false, resultTypes: ['violations'], ...options})).violations"
    return [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in page.evaluate(run, options)]


_SETTLED = """async () => {
  const scrolls = each => each.scrollWidth > each.clientWidth && each.tabIndex < 0;
  for (let tries = 0; tries < 100 && [...document.querySelectorAll("pre > code")].some(scrolls); tries++)
    await new Promise(resolve => setTimeout(resolve, 50));
}"""
"""Scripts make code blocks focusable only some time after the size has changed; without them axe says so."""


def violations_by_size_and_scheme(page, sizes=SIZES):
    """The violations on ``page`` in each size and colour scheme, and where it is wider than the window."""
    found = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for width, height in sizes:
            page.set_viewport_size({"width": width, "height": height})
            page.evaluate(_SETTLED)
            found += [(scheme, width, *each) for each in violations(page)]
            wide = page.evaluate("document.documentElement.scrollWidth")
            found += [(scheme, width, f"{wide} px wide")] if wide > width else []
    return found


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def served(folder):
    """The address at which a server has ``folder``."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def wrong_on(browser, address, name, sizes=SIZES) -> list[object]:
    """Violations on the page ``name`` of a served site, what its console says, and requests to other servers."""
    context = browser.new_context()
    page, wrong = context.new_page(), []
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("request", lambda asked: None if asked.url.startswith((address, "data:")) else wrong.append(asked.url))
    page.goto(f"{address}/{name}")
    found = violations_by_size_and_scheme(page, sizes)
    context.close()
    return [*found, *wrong]


def wrong_in(site: Path, pattern: str = "*.html") -> Iterator[tuple[str, list[object]]]:
    """Each page of ``site`` that matches, and what is wrong on it, for a desk and a phone."""
    names = sorted(str(path.relative_to(site)) for path in site.rglob(pattern))
    with served(site) as address:
        for browser in launched():
            for name in names:
                yield name, wrong_on(browser, address, name, [SIZES[0], SIZES[-1]])


if __name__ == "__main__":
    pages = list[str]()
    bad = 0
    for name, wrong in wrong_in(Path(sys.argv[1]), *sys.argv[2:3]):
        pages.append(name)
        bad += bool(wrong)
        for each in wrong:
            click.echo(f"{name}: {each}")
    click.echo(f"{len(pages)} pages, {bad} with violations")
    sys.exit(1 if bad or not pages else 0)
