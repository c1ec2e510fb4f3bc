"""What a leaderboard's folder says of itself: ``board.toml`` and rules of its own, each with what is wrong with it.

The one idea: these files come from a pull request like any entry, so a wrong one is a finding that names it, and the
entries that do not need it are judged all the same.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from levelbench.errors import LevelbenchError, UsageError
from levelbench.records.rulesets.registry import folder_rulesets
from levelbench.records.rulesets.schema import Ruleset
from levelbench.records.submissions.addresses import is_address
from levelbench.records.submissions.files import write_whole
from levelbench.records.submissions.reading import UnreadableError, read_bytes
from levelbench.records.submissions.rules.findings import Finding, error, warning
from levelbench.records.writer import path_part

__all__ = ["BOARD", "BoardSettings", "add_ruleset", "board_settings", "is_new_ruleset", "own_rulesets"]

BOARD = "board.toml"
_RULESETS = "rulesets"
_LARGEST_BYTES = 1 << 20
_KEYS = {"title": str, "rulesets": list, "url": str}


class BoardSettings(Struct):
    """What ``board.toml`` may say: the site's title, the ids of the rulesets that are shown, the site's address."""

    title: str = "Time to accuracy"
    rulesets: list[str] = []
    url: str = ""


def own_rulesets(root: Path) -> tuple[dict[str, Ruleset], list[Finding]]:
    """The rulesets that entries may name, by id: those that ship and the folder's own; and which of these are wrong.

    A file that is no ruleset stops nothing: an entry that names it finds no ruleset of that id.
    """
    refused: dict[str, LevelbenchError] = {}
    known = folder_rulesets(root, refused)
    return known, [
        error("B252", file.encode("utf-8", "backslashreplace").decode(), "", problem.found, problem.do)
        for file, problem in refused.items()
    ]


def is_new_ruleset(root: Path, rules: Ruleset) -> bool:
    """Whether the leaderboard at ``root`` does not know ``rules`` yet; ``UsageError`` if others have their id."""
    held = own_rulesets(root)[0].get(rules.id)
    if held is not None and held != rules:
        found = f"{root / _RULESETS} has another ruleset of that id"
        raise UsageError(f"the ruleset {rules.id}", found, "call it otherwise: id, name and version")
    return held is None


def add_ruleset(root: Path, rules: Ruleset, raw: bytes) -> Path | None:
    """Put ``raw``, the file of ``rules``, into the leaderboard, so that its entries can name them; where it is then.

    ``None``: they are known there already. Raises ``UsageError`` where something else has their id or their place.
    """
    if not is_new_ruleset(root, rules):
        return None
    place = root / _RULESETS
    path = place / f"{path_part(rules.id)}.toml"
    if place.is_symlink() or os.path.lexists(path):
        found = "its folder is a link" if place.is_symlink() else "something else is there"
        raise UsageError(f"writing {path}", found, "put the ruleset into the leaderboard's rulesets/ yourself")
    return write_whole(path, raw, replace=False)


def board_settings(root: Path, known: Mapping[str, Ruleset]) -> tuple[BoardSettings, list[Finding]]:
    """What ``board.toml`` says, and what is wrong with it; ``known`` are the rulesets that it may list.

    What is of another type than it should be is as if it were not there.
    """
    path = root / BOARD
    if not path.exists() and not path.is_symlink():
        return BoardSettings(), []
    do = "write TOML: it may have title, rulesets (a list of ids) and url"
    try:
        read = tomllib.loads(read_bytes(path, limit=_LARGEST_BYTES).decode("utf-8"))
    except UnreadableError as problem:
        return BoardSettings(), [error("B252", BOARD, "", problem.found, problem.do)]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        return BoardSettings(), [error("B252", BOARD, "", f"it is not TOML ({str(problem)[:200]})", do)]
    found = [*_of_keys(read), *_of_rulesets(read.get("rulesets"), known), *_of_address(read.get("url"))]
    sound = {name: value for name, value in read.items() if isinstance(value, _KEYS.get(name, ()))}
    if not all(isinstance(each, str) for each in sound.get("rulesets", ())):
        del sound["rulesets"]
    return BoardSettings(**sound), found


def _of_keys(read: Mapping[str, Any]) -> Iterator[Finding]:
    for name, value in read.items():
        kind = _KEYS.get(name)
        if kind is None:
            close = difflib.get_close_matches(name, _KEYS, 1)
            do = f"write {close[0]}" if close else f"remove it; there are {', '.join(_KEYS)}"
            yield warning("B255", BOARD, _cut(name), "there is no such key", do)
        elif not isinstance(value, kind):
            words = "a list of ids" if kind is list else "a text"
            yield error("B252", BOARD, name, f"it is {_cut(repr(value))}", f"write {words}")


def _of_rulesets(listed: Any, known: Mapping[str, Ruleset]) -> Iterator[Finding]:
    for at, id in enumerate(listed if isinstance(listed, list) else ()):
        if not isinstance(id, str) or id not in known:
            found = f"it is {_cut(repr(id))}; there are {', '.join(sorted(known))}"
            yield error("B110", BOARD, f"rulesets[{at}]", found, "list one of these, or add its file to rulesets/")


def _of_address(url: Any) -> Iterator[Finding]:
    if not isinstance(url, str) or not url:
        return
    if not is_address(url):
        yield error("B172", BOARD, "url", f"it is {_cut(repr(url))}", "give an address with http or https")


def _cut(text: str) -> str:
    return ascii(text)[1:-1][:100]
