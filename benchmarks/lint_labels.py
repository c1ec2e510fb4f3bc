"""How often the linter agrees with two readers about published claims.

    python benchmarks/lint_labels.py [--details]
    python benchmarks/lint_labels.py --questions    # of claims with what a reviewer would ask

Each claim of docs/evidence/published-claims was labelled by two readers, independently and before the linter saw it:
the rules whose way a claim uses, as far as its file says. Where the two agree, that is the truth; what they disagree on
is counted and left out. An error or a warning of a rule is a finding; "not stated" is none.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections import Counter
from pathlib import Path

import msgspec

from levelbench.claims.lint import findings_of
from levelbench.claims.reading import read
from levelbench.claims.rules import shipped_rules
from levelbench.claims.view import Claim
from levelbench.measure.statistics import wilson

ROOT = Path(__file__).parents[1]
CLAIMS = ROOT / "docs" / "evidence" / "published-claims"
FRESH = ROOT / "tests" / "claims" / "fresh.toml"

COLUMNS = ("rule", "claims that use it", "found", "precision", "recall")
COLUMNS += ("right, questions included", "recall, questions included", "readers disagree")


def findings(path: Path) -> tuple[set[str], set[str]]:
    """The rules with an error or a warning about a claim file, and those that say anything, "not stated" included."""
    findings = [each for claim in read(path) for each in findings_of(claim)]
    return {each.code for each in findings if each.severity != "not-stated"}, {each.code for each in findings}


def print_questions() -> None:
    """A row for each wave of fresh claims: which rules' questions were wanted, asked, needless and missing."""
    stated = tomllib.loads(FRESH.read_text(encoding="utf-8"))["questions"]
    print("| Wave | claims | wanted | asked | needless | missing |\n|---|--:|--:|--:|--:|--:|")
    for wave in (1, 2):
        counts, claims = Counter[str](), [each for each in stated if each.get("wave", 1) == wave]
        for each in claims:
            claim = msgspec.convert({name: each[name] for name in each if name not in ("asks", "wave")}, Claim)
            found = findings_of(claim)
            told = {one.code for one in found if one.severity != "not-stated"}
            asked, wanted = {one.code for one in found} - told, set(each["asks"]) - told
            counts.update(wanted=len(wanted), asked=len(asked))
            counts.update(needless=len(asked - wanted), missing=len(wanted - asked))
        columns = (counts[name] for name in ("wanted", "asked", "needless", "missing"))
        print(f"| {wave} | {len(claims)} | {' | '.join(map(str, columns))} |")
    print_wanted()


def print_wanted() -> None:
    """The row of published claims: what a third reader would ask by some of the rules, without what may be asked."""
    labels: dict[str, dict[str, str]] = json.loads((CLAIMS / "questions.json").read_text(encoding="utf-8"))
    counts = Counter[str]()
    for name, rules in labels.items():
        said, heard = findings(CLAIMS / f"{name}.toml")
        for code, label in rules.items():
            asked = code in heard - said
            counts.update(wanted=label == "wanted", asked=asked and label != "either")
            counts.update(needless=asked and label == "needless", missing=not asked and label == "wanted")
    columns = (counts[name] for name in ("wanted", "asked", "needless", "missing"))
    print(f"| published | {len(labels)} | {' | '.join(map(str, columns))} |")


def main() -> None:
    """Print the table, and with ``--details`` each claim on which linter and readers differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--details", action="store_true")
    parser.add_argument("--questions", action="store_true")
    chosen = parser.parse_args()
    if chosen.questions:
        print_questions()
        return
    details = chosen.details
    one, other = (json.loads((CLAIMS / f"reader-{name}.json").read_text()) for name in ("one", "two"))
    files = sorted(CLAIMS.glob("*.toml"))
    right, false, asked, spoken, both, apart = (Counter[str]() for _ in range(6))
    for path in files:
        said, heard = findings(path)
        for rule in shipped_rules():
            code = rule.code
            labels = code in one[path.stem], code in other[path.stem]
            if labels[0] != labels[1]:
                apart[code] += 1
                continue
            both[code] += labels[0]
            right[code] += labels[0] and code in said
            false[code] += code in said and not labels[0]
            asked[code] += labels[0] and code in heard
            spoken[code] += code in heard
            if details and (code in said) != labels[0]:
                print(f"{path.stem}: {code} {'found, and no reader says so' if code in said else 'missed'}")
    print(f"| {' | '.join(COLUMNS)} |")
    print("|" + "---|" * len(COLUMNS))
    for code in sorted(both, key=lambda code: (-both[code], code)):
        told = right[code] + false[code]
        if told or both[code] or apart[code]:
            precision = f"{right[code]} of {told}" if told else "–"
            recall = f"{right[code]} of {both[code]}" if both[code] else "–"
            asked_right = f"{asked[code]} of {spoken[code]}" if spoken[code] else "–"
            spoken_of = f"{asked[code]} of {both[code]}" if both[code] else "–"
            cells = (both[code], told, precision, recall, asked_right, spoken_of, apart[code])
            print(f"| {code} | {' | '.join(map(str, cells))} |")
    hit, told, all_ = sum(right.values()), sum(right.values()) + sum(false.values()), sum(both.values())
    shares = [
        f"{k} of {n} [{wilson(k, n).low:.2f}, {wilson(k, n).high:.2f}]"
        for k, n in ((hit, told), (hit, all_), (sum(asked.values()), sum(spoken.values())), (sum(asked.values()), all_))
        if n
    ]
    print(f"| all of {len(files)} claims | {all_} | {told} | {' | '.join(shares)} | {sum(apart.values())} |")


if __name__ == "__main__":
    main()
