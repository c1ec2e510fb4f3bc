"""The table of docs/evidence/lint-results.md: ``python -m tests.claims.results`` writes it where real entries are."""

from __future__ import annotations

import os
import re
import tarfile
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

from tests.claims.checked import ARTICLES, DAWNBENCH, MLPERF, STOPPED_ON_TEST, Verdicts

from levelbench.claims.lint import findings_of
from levelbench.claims.reading import read_folder
from levelbench.claims.rule import Diagnostic
from levelbench.claims.view import Claim

__all__ = ["PAGE", "articles", "counted", "dawnbench", "mlperf", "precision", "shared", "table"]

DOCS = Path(__file__).parents[2] / "docs" / "evidence"
PAGE = DOCS / "lint-results.md"
TABLE = re.compile(r"(<!-- table -->\n).*(<!-- end of table -->)", re.DOTALL)

Found = dict[tuple[str, str], list[Diagnostic]]


def shared() -> Path | None:
    """The folder of other people's results, beside the checkout or where ``LEVELBENCH_SHARED`` says."""
    above = Path(__file__).parents[2]
    places = [os.environ.get("LEVELBENCH_SHARED"), above / "shared", above.parent / "shared"]
    return next((Path(each) / "data" for each in places if each and (Path(each) / "data").is_dir()), None)


def _found(claims: list[Claim]) -> Found:
    """Errors and warnings by the claim's file (an entry's without its ending) and the rule."""
    found: Found = {}
    for claim in claims:
        path = Path(claim.where)
        name = path.name if claim.read_from == "claim" else path.name.removesuffix(".json")
        for each in findings_of(claim):
            if each.severity != "not-stated":
                found.setdefault((name, each.code), []).append(each)
    return found


@cache
def articles() -> Found:
    """Findings on the figures of articles, as docs/evidence/claims has them; not on those that are made up."""
    return _found([each for each in read_folder(DOCS / "claims") if "made-up" not in each.where])


@cache
def dawnbench(data: Path) -> Found:
    """Findings on the entries of DAWNBench's."""
    return _found(read_folder(data / "dawnbench"))


@cache
def mlperf(data: Path) -> Found:
    """Findings on the logs of MLPerf's training of 2019."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(data / "mlperf-training-v0.6.tar.gz") as archive:
            archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        return _found(read_folder(folder))


def counted(found: Found) -> set[tuple[str, str, int]]:
    """The keys under which verdicts are given."""
    return {(name, code, len(each)) for (name, code), each in found.items()}


def precision(*parts: Verdicts, more_right: int = 0) -> tuple[int, int]:
    """How many findings are right, of how many: what is arguable counts as not right."""
    verdicts = Counter[str]()
    for part in parts:
        for (_, _, count), (verdict, _) in part.items():
            several = re.findall(r"(\d+) (right|wrong|arguable)", verdict)
            verdicts.update({word: int(number) for number, word in several} or {verdict: count})
    return verdicts["right"] + more_right, sum(verdicts.values()) + more_right


def table(data: Path) -> str:
    """All verdicts with what was found."""
    parts = ((DAWNBENCH, dawnbench(data)), (MLPERF, mlperf(data)), (ARTICLES, articles()))
    lines = ["| claim | rule | found | verdict | why |", "|---|---|---|---|---|"]
    for verdicts, found in parts:
        for (name, code, _), (verdict, why) in verdicts.items():
            said = "; ".join(each.found for each in found[name, code])
            lines.append(f"| {name} | {code} | {_cell(said)} | {verdict} | {_cell(why)} |")
    count = sum(code == "LB122" for _, code in parts[0][1])
    said = "the test data decided when ... stopped, looked at ... times in a run; its time is to a target on that data"
    lines.insert(2, f"| all {count} entries of training | LB122 | {said} | right | {STOPPED_ON_TEST} |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|") if len(text) <= 420 else f"{text[:417]}...".replace("|", "\\|")


if __name__ == "__main__":
    there = shared()
    assert there is not None, "no real results are here, which are not ours to ship: LEVELBENCH_SHARED/data"
    PAGE.write_text(TABLE.sub(lambda found: found[1] + table(there) + found[2], PAGE.read_text()), encoding="utf-8")
