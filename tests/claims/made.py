"""Rules and claims that say what a test wants, so that no test of the linter depends on a rule's wording."""

from dataclasses import replace

from levelbench.claims.rule import Diagnostic, rule_of_page
from levelbench.claims.view import Claim, Side

TEXT = """\
# LB107 highest-operations

*Way 7: the highest number of operations.* Operations per second are no result.

Whoever counts operations counts what was done, and not what came of it. Whoever counts operations counts what was done,
and not what came of it.

## Sound practice

Give the precision, the share of the peak, and the operations to the target.

## Examples

Guilty:

> We reach 2 exaFLOP/s.

Innocent:

> We reach 2 PFLOP/s in bfloat16, 40 % of the peak, and the target after 3e18 operations.

## What it reads, and what it cannot see

It reads `sides[].operations.flops`, `sides[].operations.precisions`. It cannot see how operations were counted

Source: Hoefler, Twelve ways (2018), 7.
"""
PAGE = rule_of_page(TEXT, lambda claim: ())


def rule(code, *findings):
    """A rule that finds the same on every claim: ``findings`` are (severity, found, do, field, where) or shorter."""
    made = tuple(Diagnostic(code, *each) for each in findings)
    about = f"way {int(code[3:]) % 20}: a way" if code.startswith("LB1") else "sound measurement"
    return replace(PAGE, code=code, name=f"rule-{code[2:]}", about=about, check=lambda claim: made)


def claim(title="8-bit is 5 times faster", **more):
    return Claim(title, [Side("ours")], **more)


ERROR = rule("LB105", ("error", "5 times of 30 % of the time", "time the whole", "comparisons[0].ratio"))
WARNING = rule("LB204", ("warning", "no interval", "make 5 runs", "sides[0].interval", "table 2"))
UNSAID = rule("LB103", ("not-stated", "not stated: the trials", "say how many", "sides[0].tuning.trials"))
RULES = (UNSAID, ERROR, WARNING)
