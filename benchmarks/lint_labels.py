"""How often the linter agrees with two readers about published claims.

    python benchmarks/lint_labels.py [--details]

Each claim of docs/evidence/published-claims was labelled by two readers, independently and before the linter saw it:
the rules whose way a claim uses, as far as its file says. Where the two agree, that is the truth; what they disagree on
is counted and left out. An error or a warning of a rule is a finding; "not stated" is none.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from levelbench.claims.lint import findings_of
from levelbench.claims.reading import read
from levelbench.claims.rules import shipped_rules
from levelbench.measure.statistics import wilson

CLAIMS = Path(__file__).parents[1] / "docs" / "evidence" / "published-claims"


def found(path: Path) -> tuple[set[str], set[str]]:
    """The rules with an error or a warning about a claim file, and those that say anything, "not stated" included."""
    findings = [each for claim in read(path) for each in findings_of(claim)]
    return {each.code for each in findings if each.severity != "not-stated"}, {each.code for each in findings}


def main() -> None:
    """Print the table, and with ``--details`` each claim on which linter and readers differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--details", action="store_true")
    details = parser.parse_args().details
    one, other = (json.loads((CLAIMS / f"reader-{name}.json").read_text()) for name in ("one", "two"))
    files = sorted(CLAIMS.glob("*.toml"))
    right, false, asked, both, apart = (Counter[str]() for _ in range(5))
    for path in files:
        said, spoken = found(path)
        for rule in shipped_rules():
            code = rule.code
            labels = code in one[path.stem], code in other[path.stem]
            if labels[0] != labels[1]:
                apart[code] += 1
                continue
            both[code] += labels[0]
            right[code] += labels[0] and code in said
            false[code] += code in said and not labels[0]
            asked[code] += labels[0] and code in spoken
            if details and (code in said) != labels[0]:
                print(f"{path.stem}: {code} {'found, and no reader says so' if code in said else 'missed'}")
    print("| rule | claims that use it | found | precision | recall | found or asked | readers disagree |")
    print("|---|---|---|---|---|---|---|")
    for code in sorted(both, key=lambda code: (-both[code], code)):
        told = right[code] + false[code]
        if told or both[code] or apart[code]:
            precision = f"{right[code]} of {told}" if told else "–"
            recall = f"{right[code]} of {both[code]}" if both[code] else "–"
            spoken_of = f"{asked[code]} of {both[code]}" if both[code] else "–"
            print(f"| {code} | {both[code]} | {told} | {precision} | {recall} | {spoken_of} | {apart[code]} |")
    hit, told, all_ = sum(right.values()), sum(right.values()) + sum(false.values()), sum(both.values())
    shares = [
        f"{k} of {n} [{wilson(k, n).low:.2f}, {wilson(k, n).high:.2f}]"
        for k, n in ((hit, told), (hit, all_), (sum(asked.values()), all_))
        if n
    ]
    print(f"| all of {len(files)} claims | {all_} | {told} | {' | '.join(shares)} | {sum(apart.values())} |")


if __name__ == "__main__":
    main()
