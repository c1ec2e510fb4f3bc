"""The linter on claims that were written to try it: what a reviewer would hold against them, and nothing near to it."""

import tomllib
from pathlib import Path

import msgspec
import pytest

from levelbench.claims.lint import findings_of
from levelbench.claims.reading.claim_file import faults
from levelbench.claims.view import Claim

TABLES = tomllib.loads((Path(__file__).parent / "fresh.toml").read_text(encoding="utf-8"))
FRESH = TABLES["claim"]
ABOUT = {"rule", "dubious", "asked", "asks", "wave"}
ASKED = {"In 6.1 min [5.9, 6.3]; the three seeds that did not converge are not in it"}
"""What only its title says: nothing else tells this median from one of all runs."""


def claims(**kind):
    found = []
    for stated in FRESH:
        if kind.items() <= stated.items() and stated["title"] not in ASKED:
            claim = {name: value for name, value in stated.items() if name not in ABOUT}
            assert not faults(claim, Claim), claim["title"]
            found.append(
                pytest.param(stated["rule"], msgspec.convert(claim, Claim), id=f"{stated['rule']}: {claim['title']}")
            )
    return found


NOT_ASKED = {("Our schedule halves the cost of training to 75 %", "LB112")}
"""Both sides have one target, which is their quality: whoever wrote the claim wanted it asked all the same."""


def questions():
    for stated in TABLES["questions"]:
        claim = {name: value for name, value in stated.items() if name not in ABOUT}
        assert not faults(claim, Claim), claim["title"]
        wanted = {code for code in stated["asks"] if (claim["title"], code) not in NOT_ASKED}
        yield pytest.param(msgspec.convert(claim, Claim), wanted, id=claim["title"])


def held_against(claim):
    return {each.code for each in findings_of(claim) if each.severity != "not-stated"}


@pytest.mark.parametrize(("rule", "claim"), claims(dubious=True))
def test_a_dubious_claim_is_found(rule, claim):
    assert rule in held_against(claim)


@pytest.mark.parametrize(("rule", "claim"), claims(dubious=False))
def test_an_honest_claim_close_to_it_is_not(rule, claim):
    assert rule not in held_against(claim)


@pytest.mark.parametrize(("rule", "claim"), claims(asked=True))
def test_what_decides_is_asked_for(rule, claim):
    assert rule in {each.code for each in findings_of(claim)}


@pytest.mark.parametrize(("rule", "claim"), claims(asked=False))
def test_nothing_is_asked_where_it_does_not_apply(rule, claim):
    assert rule not in {each.code for each in findings_of(claim)}


@pytest.mark.parametrize(("claim", "wanted"), [*questions()])
def test_what_a_reviewer_would_ask_is_asked_and_nothing_else(claim, wanted):
    held = held_against(claim)
    assert {each.code for each in findings_of(claim)} - held == wanted - held
