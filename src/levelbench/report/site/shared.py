"""The files that all pages of a site share: style sheet, icon and scripts.

The one idea: each is named after its content, so a page that was written by another version never meets a script or a
style that it does not know, whenever the build of one was stopped.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from levelbench.report.markup import DARK, LIGHT, PHASES, SERIES, style_sheet, variables

__all__ = ["asset", "assets"]

_SCRIPTS = ("dom.js", "ranking.js", "data.js", "view.js", "table.js", "controls.js", "curves.js", "main.js")


@cache
def _named() -> dict[str, tuple[str, bytes]]:
    """Each file's own name, with the name that it gets and its content."""
    folder = files("levelbench.report.site") / "assets"
    own = (folder / "board.css").read_text("utf-8")
    contents = {
        "board.css": f"{style_sheet()}\n{_schemes()}\n{_series()}\n{own}".encode(),
        "board.js": b"".join((folder / name).read_bytes() for name in _SCRIPTS),
        "theme.js": (folder / "theme.js").read_bytes(),
        "icon.svg": (folder / "icon.svg").read_bytes(),
    }
    named = {}
    for name, content in contents.items():
        stem, _, ending = name.partition(".")
        named[name] = (f"{stem}-{hashlib.sha256(content).hexdigest()[:10]}.{ending}", content)
    return named


def assets() -> dict[str, bytes]:
    """The files of ``assets/`` by the names that they get."""
    return dict(_named().values())


def asset(name: str) -> str:
    """Where the file is, relative to the site's root: ``board.js`` is in ``assets/board-3f2a91c45e.js``."""
    return f"assets/{_named()[name][0]}"


def _schemes() -> str:
    """The two schemes again, for those who chose one of them against their system's; never on paper."""
    chosen = (("light", LIGHT, 0), ("dark", DARK, 1))
    rules = "".join(
        f":root[data-theme={name}]{{color-scheme:{name};{variables(base, which)}}}" for name, base, which in chosen
    )
    return f"@media screen{{{rules}}}"


def _series() -> str:
    """A class for each series and phase: an attribute with a style would be against the page's policy."""
    series = "".join(f".s{at}{{stroke:var(--series-{at})}}" for at in range(len(SERIES)))
    return series + "".join(f".p-{name}{{fill:var(--phase-{name})}}" for name in PHASES)
