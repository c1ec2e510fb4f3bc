"""Headless Chromium for tests of pages, and what axe says about an open page."""

from pathlib import Path

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


def violations_by_size_and_scheme(page):
    """The violations on ``page`` in each size and colour scheme, and where it is wider than the window."""
    found = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for width, height in SIZES:
            page.set_viewport_size({"width": width, "height": height})
            page.evaluate(_SETTLED)
            found += [(scheme, width, *each) for each in violations(page)]
            wide = page.evaluate("document.documentElement.scrollWidth")
            found += [(scheme, width, f"{wide} px wide")] if wide > width else []
    return found
