"""How many planted faults the checks find: docs/evidence/self-test.md.

    python benchmarks/self_test.py run [KIND ...] --raw RESULT.json              # parts of others, every finding kept
    python benchmarks/self_test.py score RESULT.json --first FIRST.json          # what was found, first and now
    python benchmarks/self_test.py repeat [KIND ...] [--parts 40] [--seeds 20]   # whether verdicts depend on the seed

``FIRST.json`` is the result of the probes as they were before anybody looked at it. Both results are counted with the
same table of aspects. A third of the parts of each author is held back until the probes are finished.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from levelbench.checks.findings import Finding
from levelbench.checks.self_test import JudgedPart, MutationScore, outcome_of, score
from levelbench.cli.check_self import KINDS, corpus_of, self_test
from levelbench.measure.clocks import HOST
from levelbench.report.tables import listing, to_markdown

LONGEST = 200


def raw(found: Sequence[JudgedPart], seconds: float) -> dict[str, Any]:
    """The result of a kind as JSON, with findings cut short."""
    parts = [each.to_dict() for each in found]
    for each in parts:
        each["findings"] = [{"probe": one["probe"], "found": one["found"][:LONGEST]} for one in each["findings"]]
    return {"seconds": round(seconds, 1), "parts": parts}


def run(kinds: Sequence[str], path: Path) -> None:
    """Check the parts of some kinds that others wrote, and keep the findings in a file, beside those of other kinds."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    for kind in kinds or KINDS:
        begun = HOST.now_ns()
        names = {name for path, name, _ in corpus_of(kind) if path.stem == kind}
        found = self_test(kind, only=lambda name, _, names=names: name in names, all_findings=True)
        kept[kind] = raw(found, (HOST.now_ns() - begun) / 1e9)
        path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
        print(kind, dict(score(kind, found).counts), f"{kept[kind]['seconds']} s", flush=True)


def judged(kind: str, result: dict[str, Any]) -> list[JudgedPart]:
    """The parts of a kept result that are still in the corpus, judged by today's table of aspects."""
    planted = {name: part for _, name, part in corpus_of(kind)}
    found = []
    for each in result.get(kind, {"parts": ()})["parts"]:
        part = planted.get(each["name"])
        if part is not None:
            findings = tuple(Finding(one["probe"], "failed", one["found"]) for one in each["findings"])
            tried = each["outcome"] != "not tried"
            outcome = outcome_of(part, findings, KINDS[kind].probes) if tried else "not tried"
            found.append(JudgedPart(kind, each["name"], part, outcome, findings, each["seconds"]))
    return found


def cells(counted: MutationScore) -> list[str]:
    """``84 of 91 (92 %)`` of faults found for the right reason, and the right parts that are accused."""
    if not counted.counts:
        return ["–", "–"]
    share = "–" if counted.share is None else f"{counted.counts.get('right reason', 0)} of {counted.faults}"
    percent = "" if counted.share is None else f" ({100 * counted.share:.0f} %)"
    return [f"{share}{percent}", f"{counted.counts.get('accused', 0)} of {counted.right}"]


def compare(now: Path, first: Path) -> None:
    """Print the score of each kind, first and now, of all parts and of those held back."""
    results = [json.loads(path.read_text()) for path in (first, now)]
    rows = []
    for kind in KINDS:
        both = [judged(kind, each) for each in results]
        for title in ("all", "held back"):
            chosen = [[e for e in found if title == "all" or e.planted.held_back] for found in both]
            longest = f"{max(each.seconds for each in chosen[1]):.0f}" if chosen[1] else "–"
            rows.append([kind, title, *(cell for found in chosen for cell in cells(score(kind, found))), longest])
    header = ("Kind", "Parts", "Found first", "Accused first", "Found now", "Accused now", "Longest part now, s")
    print(to_markdown(listing("self-test", "Planted faults", header, rows)))


def repeat(kinds: Sequence[str], parts: int, seeds: int) -> int:
    """Whether some parts of each kind get the same outcome with every seed; returns 1 if any does not.

    ``parts`` are those of all kinds, of which each has an equal share, also if only some ``kinds`` are asked for.
    """
    rows = []
    for kind in kinds or KINDS:
        names = sorted(name for _, name, _ in corpus_of(kind))
        drawn = set(Random(0).sample(names, min(parts // len(KINDS), len(names))))
        found = self_test(kind, range(seeds), lambda name, _, drawn=drawn: name in drawn)
        outcomes: dict[str, set[str]] = defaultdict(set)
        for each in found:
            outcomes[each.name].add(each.outcome)
        unequal = [f"{name} ({', '.join(sorted(each))})" for name, each in outcomes.items() if len(each) > 1]
        equal = len(outcomes) - len(unequal)
        rows.append([kind, str(len(outcomes)), str(seeds), str(equal), "; ".join(unequal) or "–"])
        print(kind, equal, "of", len(outcomes), flush=True)
    header = ("Kind", "Parts", "Seeds", "Same verdict", "Different")
    print(to_markdown(listing("repeat", "Verdicts over seeds", header, rows)))
    return int(any(row[-1] != "–" for row in rows))


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run")
    running.add_argument("kinds", nargs="*", metavar="KIND")
    running.add_argument("--raw", type=Path, required=True)
    scoring = verbs.add_parser("score")
    scoring.add_argument("now", type=Path)
    scoring.add_argument("--first", type=Path, required=True)
    repeating = verbs.add_parser("repeat")
    repeating.add_argument("kinds", nargs="*", metavar="KIND")
    repeating.add_argument("--parts", type=int, default=40)
    repeating.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    if given.verb == "run":
        run(given.kinds, given.raw)
    elif given.verb == "score":
        compare(given.now, given.first)
    else:
        return repeat(given.kinds, given.parts, given.seeds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
