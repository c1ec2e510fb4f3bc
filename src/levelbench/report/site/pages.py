"""The site's pages and the files that they share.

The one idea: a page is a function of data; where it goes, and when it is made again, is the build's.
"""

from __future__ import annotations

from importlib.resources import files

from levelbench.report import style
from levelbench.report.site.board_view import task_page
from levelbench.report.site.entry_view import entry_page
from levelbench.report.site.index_view import index_page

__all__ = ["assets", "entry_page", "index_page", "task_page"]

_SCRIPTS = ("dom.js", "ranking.js", "view.js", "table.js", "controls.js", "curves.js", "main.js")


def assets() -> dict[str, bytes]:
    """The files of ``assets/`` by name: style sheet, icon, and two scripts."""
    folder = files("levelbench.report.site") / "assets"
    script = b"".join((folder / name).read_bytes() for name in _SCRIPTS)
    own = (folder / "board.css").read_text("utf-8")
    return {
        "board.css": f"{style.style_sheet()}\n{_schemes()}\n{_series()}\n{own}".encode(),
        "board.js": script,
        "theme.js": (folder / "theme.js").read_bytes(),
        "icon.svg": (folder / "icon.svg").read_bytes(),
    }


def _schemes() -> str:
    """The two schemes again, for those who chose one of them against their system's; never on paper."""
    chosen = (("light", style.LIGHT, 0), ("dark", style.DARK, 1))
    rules = "".join(
        f":root[data-theme={name}]{{color-scheme:{name};{style.variables(base, which)}}}"
        for name, base, which in chosen
    )
    return f"@media screen{{{rules}}}"


def _series() -> str:
    """A class for each series and phase: an attribute with a style would be against the page's policy."""
    series = "".join(f".s{at}{{stroke:var(--series-{at})}}" for at in range(len(style.SERIES)))
    return series + "".join(f".p-{name}{{fill:var(--phase-{name})}}" for name in style.PHASES)
