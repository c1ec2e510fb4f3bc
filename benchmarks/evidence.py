"""The tables of docs/evidence: each is kept as JSON beside its page, with what measured it, and written from there.

    python benchmarks/evidence.py                                           # writes all tables, from their JSON
    python benchmarks/evidence.py measure docs/evidence/belief.md verdicts  # again, by the command that is kept there
    python benchmarks/evidence.py measure PAGE NAME --command COMMAND --source PATH
    python benchmarks/evidence.py adopt PAGE NAME --commit COMMIT --source PATH   # as it already stands in the page

A page has a table between ``<!-- table: NAME -->`` and ``<!-- end of table -->``. ``measure`` runs the command and
keeps the table that it prints. The JSON names the sources on which the figures depend, with a checksum of what they
were, and the built site says which of them have changed since (tools/pages.py); a change of code thus needs no change
of the page. ``commit`` is the one that was measured or, of an adopted table, the one that published it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EVIDENCE = ROOT / "docs" / "evidence"
PLACE = re.compile(r"<!-- table: (?P<name>[\w-]+) -->\n.*?<!-- end of table -->", flags=re.DOTALL)
TABLE = re.compile(r"^\|.*\n\|[-:| ]+\|\n(?:\|.*\n)+", flags=re.MULTILINE)
PACKAGES = ("levelbench", "numpy", "onnx", "torch", "jax", "onnxruntime")
NUMBER = re.compile(r"[-–]?[\d.,]*\d( ?%)?|–|")


def git(*words: str) -> str:
    """What git answers here; an error if it refuses."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def files(source: str) -> list[Path]:
    """The files of a source: itself, or a folder's Python files."""
    path = ROOT / source
    return sorted(path.glob("**/*.py")) if path.is_dir() else [path] if path.exists() else []


def checksum(contents: Iterable[bytes]) -> str | None:
    """One of all ``contents``; None if there are none."""
    digest, some = sha256(), False
    for each in contents:
        digest.update(sha256(each).digest())
        some = True
    return digest.hexdigest()[:16] if some else None


def checksum_now(source: str) -> str | None:
    """The checksum of a source as it is."""
    return checksum(path.read_bytes() for path in files(source))


def checksum_at(commit: str, source: str) -> str | None:
    """The checksum of a source as it was; None if it was not there."""
    names = git("ls-tree", "-r", "--name-only", commit, "--", source).splitlines()
    kept = sorted(ROOT / name for name in names if name == source or name.endswith(".py"))
    return checksum(
        subprocess.run(
            ["git", "show", f"{commit}:{path.relative_to(ROOT)}"], cwd=ROOT, capture_output=True, check=True
        ).stdout
        for path in kept
    )


def kept_beside(page: Path) -> dict[str, Any]:
    """The tables of the JSON beside ``page``, by their names."""
    beside = page.with_suffix(".json")
    return json.loads(beside.read_text()) if beside.exists() else {}


def _store(page: Path, name: str, table: dict[str, Any]) -> None:
    beside, kept = page.with_suffix(".json"), {**kept_beside(page), name: table}
    rows = re.compile(r"\[\s+(\"(?:[^\"\\]|\\.)*\"(?:,\s+\"(?:[^\"\\]|\\.)*\")*)\s+\]")
    text = json.dumps(kept, indent=1, ensure_ascii=False)
    text = rows.sub(lambda row: "[" + re.sub(r'",\s+"', '", "', row[1]) + "]", text)  # a row on a line
    beside.write_text(text + "\n")
    page.write_text(written(page.read_text(), page))


def changed(table: dict[str, Any]) -> list[str]:
    """The sources of a table that are not what they were when it was measured."""
    return [source for source, digest in table["sources"].items() if digest is None or checksum_now(source) != digest]


def written(markdown: str, page: Path, since: Callable[[dict[str, Any]], str] = lambda table: "") -> str:
    """``markdown`` with each marked table as the JSON beside ``page`` has it; ``since`` adds to what is below it."""
    beside, kept = page.with_suffix(".json"), kept_beside(page)

    def one(place: re.Match[str]) -> str:
        name = place["name"]
        if name not in kept:
            raise KeyError(f"{page.name} has a table {name!r}, which {beside.name} lacks")
        table = kept[name]
        columns = list(zip(*table["rows"], strict=True))
        rules = ["--:" if all(NUMBER.fullmatch(cell) for cell in cells) else "---" for cells in columns]
        lines = [f"| {' | '.join(cells)} |" for cells in (table["columns"], *table["rows"])]
        lines.insert(1, f"|{'|'.join(rules)}|")
        below = (
            f"*Figures of {table['date']}, at commit {table['commit']}: [{beside.name}]({beside.name}).{since(table)}*"
        )
        return "\n".join([f"<!-- table: {name} -->", "", *lines, "", below, "", "<!-- end of table -->"])

    return PLACE.sub(one, markdown)


def with_changes(markdown: str, page: Path) -> str:
    """``markdown`` as the built site shows it: below each table, which of its sources have changed since."""

    def since(table: dict[str, Any]) -> str:
        names = [f"`{each}`" for each in changed(table)]
        return f" Changed since then: {', '.join(names)}." if names else ""

    return written(markdown, page, since)


def cells_of(lines: Sequence[str]) -> list[list[str]]:
    """The cells of the lines of a table in Markdown, without its rule."""
    rows = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in (lines[0], *lines[2:])]
    return [[cell.strip() for cell in row] for row in rows]


def measure(page: Path, number: int, name: str, command: str | None, sources: Sequence[str] | None) -> None:
    """Run the command of a table, and keep the ``number``-th table that it prints; what is not given is as before."""
    from levelbench.measure.environment import capture, system_of

    before = kept_beside(page).get(name, {})
    command, sources = command or before.get("command"), sources or [*before.get("sources", ())]
    if not command or not sources:
        raise SystemExit(f"{page.name} keeps no command and sources of {name!r}: give --command and --source")
    if lacking := [source for source in sources if checksum_now(source) is None]:
        raise SystemExit(f"no such source: {', '.join(lacking)}")
    here = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": git("rev-parse", "--short=8", "HEAD")}
    if git("status", "--porcelain", "--", *sources):
        here["commit"] += " with changes"
    digests = {source: checksum_now(source) for source in sources}
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    tables = TABLE.findall(done.stdout)
    if len(tables) <= number:
        raise SystemExit(f"{command} printed {len(tables)} tables and ended with exit code {done.returncode}")
    columns, *rows = cells_of(tables[number].splitlines())
    facts = {"machine": system_of(capture(), "cpu").description, "versions": versions(), "command": command}
    _store(page, name, {**here, **facts, "sources": digests, "columns": columns, "rows": rows})


def versions() -> dict[str, str]:
    """The versions of what is measured, where it is installed."""
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def adopt(page: Path, number: int, name: str, commit: str, sources: Sequence[str], command: str | None) -> None:
    """Keep the ``number``-th unmarked table of ``page``."""
    text = page.read_text()
    marked = [place.span() for place in PLACE.finditer(text)]
    tables = [each for each in TABLE.finditer(text) if not any(begin <= each.start() < end for begin, end in marked)]
    columns, *rows = cells_of(tables[number][0].splitlines())
    place = f"<!-- table: {name} -->\n<!-- end of table -->\n"
    page.write_text(text[: tables[number].start()] + place + text[tables[number].end() :])
    date = git("show", "-s", "--format=%as", commit)
    digests = {source: checksum_at(commit, source) for source in sources}
    table = {"date": date, "commit": git("rev-parse", "--short=8", commit), "command": command, "sources": digests}
    _store(page, name, {**table, "columns": columns, "rows": rows})


def main() -> None:
    """Write the tables of all pages, measure one, or adopt one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb")
    for verb in (verbs.add_parser("measure"), adopting := verbs.add_parser("adopt")):
        verb.add_argument("page", type=lambda path: Path(path).resolve())
        verb.add_argument("name", help="what the table is called")
        verb.add_argument("--number", type=int, default=0, help="which of the tables there, from 0")
        verb.add_argument("--command", help="the command that measures it")
        verb.add_argument("--source", action="append", help="a file or folder that the figures depend on")
    adopting.add_argument("--commit", default="HEAD", help="what was measured")
    given = parser.parse_args()
    if given.verb == "measure":
        measure(given.page, given.number, given.name, given.command, given.source)
    elif given.verb == "adopt":
        adopt(given.page, given.number, given.name, given.commit, given.source or [], given.command)
    else:
        for page in sorted(EVIDENCE.glob("*.md")):
            page.write_text(written(page.read_text(), page))


if __name__ == "__main__":
    main()
