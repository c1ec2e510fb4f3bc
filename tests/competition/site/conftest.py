"""What the tests of the site share: boards by hand, folders to build sites of, and a browser that has a page open."""

from types import SimpleNamespace

import pytest
from tests.browsing import launched
from tests.competition.site import by_hand as making
from tests.competition.site.browsing import FOLLOW, small_site, watched
from tests.competition.site.leaderboards import write


@pytest.fixture(scope="session")
def by_hand():
    """What makes the parts of a board: ``entry``, ``figure``, ``board``, ``submission``, ``hostile``, ``target``."""
    return SimpleNamespace(
        entry=making.entry, figure=making.figure, board=making.board, submission=making.submission,
        hostile=making.hostile, target=making.TARGET,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A leaderboard of three entries."""
    place = tmp_path / "leaderboard"
    for at, name in enumerate(("first", "second", "third")):
        write(place, name, 10.0 * (at + 1))
    return place


@pytest.fixture
def site(tmp_path):
    return tmp_path / "site"


@pytest.fixture(scope="module")
def browser():
    yield from launched()


@pytest.fixture(scope="module")
def shared(browser):
    """One context for tests that change nothing outside their page."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    yield context
    context.close()


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


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A small site, for a browser to open."""
    return small_site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def kept(shared, shown):
    """The small site's board, loaded once, and what went wrong on it."""
    wrong = []
    page = watched(shared, wrong)
    page.goto((shown / "task.html").as_uri())
    return page, wrong


@pytest.fixture
def board(kept):
    """The small site's board, to which a link with a fragment was followed."""
    page, wrong = kept

    def follow(fragment="#column="):
        page.evaluate(FOLLOW, fragment)
        return page

    yield follow
    assert wrong == []
