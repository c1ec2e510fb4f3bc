"""What shows only on more ranks, in longer runs, on larger arrays or on average is found, and nothing right accused."""

import re

import pytest
from tests.distributed.probes import wider

from levelbench.distributed.probes.schemes import check_scheme

APART = {"consistent": False, "replicated": False}
INEXACT = {"consistent": False}


def check(scheme, *only, ranks=(3,)):
    return check_scheme(scheme, ranks=ranks, steps=4, seconds=5.0, only=only)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", wider.RIGHT, ids=lambda each: type(each).__name__)
def test_sharded_optimizers_and_partial_participation_are_not_accused(scheme):
    assert not check(scheme, ranks=(2, 3)).failed


FAULTS = [
    (wider.WrongOnSeven, {}, "other ranks", r"7 ranks.*what rank 6 computed is dropped"),
    (wider.WrongFromStep128, {}, "many steps", r"step 128: .*multiplied by 0\.5"),
    (wider.CutAtTwoToTheTwenty, {}, "large arrays", r"'table'"),
    (wider.CutAtTwoToTheTwenty, INEXACT, "large arrays", r"elements from 1,\d\d\d,\d+ on"),
    (wider.OneOfEachShape, {}, "gradients", r"'hidden\.bias'|'gain'"),
    (wider.OneOfEachShape, INEXACT, "right on average", r"in the same elements all the time"),
    (wider.FirstFifty, {}, "large arrays", r"'47\.bias'"),
    (wider.RestartsAtMeetings, {}, "pauses", r"a run with evaluations ends with different bits"),
    (wider.Overflows, INEXACT, "large values", r"infinite or NaN"),
    (wider.IgnoresTheSchedule, APART, "equal gradients", r"with a learning rate that changes"),
    (wider.ForgetsMomentum, APART, "equal gradients", r"with momentum"),
    (wider.RoundsDown, INEXACT, "right on average", r"in the same elements all the time"),
    (wider.TooSmall, INEXACT, "right on average", r"0\.9\d+ ± .* times the mean gradient"),
    (
        wider.DrawsTooMuchOfAScalar,
        INEXACT,
        "right on average",
        r"'scale': its mean update is 4 ±",
    ),
    (wider.MixesUpFilters, {}, "large arrays", r"'filter'"),
    (wider.LeavesOneApart, APART, "right on average", r"'gain': workers never agree on one element"),
    (wider.ShortPlaces, INEXACT, "large arrays", r"the elements from \d+,\d+ on never move"),
    (wider.LosesATenth, INEXACT, "right on average", r"in the same elements all the time"),
    (wider.SendsNoneOfSmallOnes, INEXACT, "right on average", r"'hidden\.bias': it never moves"),
    (wider.PullsBack, APART, "right on average", r"update per step falls from .* to 0 times"),
    (wider.ForgetsWithoutExamples, INEXACT, "empty parts", r"empty in every third batch"),
    (wider.SendsDifferences, INEXACT, "slow changes", r"the mean update is 0\.\d+ times these"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stepper", "claims", "probe", "words"), FAULTS, ids=[f"{each[0].__name__}-{each[2]}" for each in FAULTS]
)
def test_a_fault_beyond_a_few_small_steps_is_named(stepper, claims, probe, words):
    found = check(wider.scheme(stepper, **claims), probe).of(probe)
    assert any(each.status == "failed" and re.search(words, each.found) for each in found), found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stepper", "claims"),
    [
        (wider.Rounds, INEXACT),
        (wider.DrawsAQuarter, INEXACT),
        (wider.Remembers, INEXACT),
        (wider.Averages, APART),
        (wider.AveragesInTurn, APART),
    ],
    ids=["random rounding", "random places", "error feedback", "local steps", "local steps, averaged in turn"],
)
def test_what_is_right_on_average_is_not_accused(stepper, claims):
    probes = ("right on average", "equal gradients", "other ranks", "large arrays", "large values")
    assert not check(wider.scheme(stepper, **claims), *probes).failed


@pytest.mark.parametrize(("stepper", "status"), [(wider.SlowMomentum, "passed"), (wider.SlowMomentumTwice, "failed")])
def test_a_factor_of_the_rate_that_counts_twice_is_found(stepper, status):
    found = check(wider.scheme(stepper, **APART), "factor of the rate", "goes through").of("factor of the rate")
    assert [each.status for each in found] == [status]


@pytest.mark.parametrize(
    ("stepper", "base", "probe", "words"),
    [
        (wider.DrawsSomeTwice, wider.Rounded, "no gradients", r"away from where it started"),
        (wider.SamePairs, wider.Rounded, "comes together", r"the models of ranks \d and \d stay apart"),
        (wider.PlainServer, wider.Served, "equal gradients", r"a learning rate that changes and a single worker"),
    ],
)
def test_a_fault_between_models_or_of_a_server_is_named(stepper, base, probe, words):
    found = check(wider.scheme(stepper, base=base), probe, "goes through", ranks=(4,)).of(probe)
    assert any(each.status == "failed" and re.search(words, each.found) for each in found), found


@pytest.mark.parametrize(
    ("stepper", "claims", "probe", "words"),
    [
        (wider.EvaluatesTheFirst, APART, "evaluated weights", r"those of rank 0"),
        (wider.SkipsSteps, {}, "not finite", r"no rank makes that step"),
    ],
)
def test_what_is_a_choice_is_noted(stepper, claims, probe, words):
    found = check(wider.scheme(stepper, **claims), probe).of(probe)
    assert {each.status for each in found} == {"noted"}
    assert all(re.search(words, each.found) for each in found)
