"""Re-runs: what is consistent with a claim, what is not, and how often the answer is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from levelbench.analysis.rerun import ClaimedRun, repeated, reproduction, same_seeds
from levelbench.errors import UsageError


def outcomes(rng, seeds, pace=1.0, samples=1.0, spread=0.1):
    """Runs whose samples to the target vary by a tenth of an epoch's, and whose time per sample hardly varies."""
    found = []
    for seed in seeds:
        taken = samples * 100 * round(10 * np.exp(rng.normal(0, spread)))
        found.append(ClaimedRun(seed, True, pace * taken * np.exp(rng.normal(0, 0.03)), taken))
    return found


def answer(claimed, again, **more):
    return reproduction(claimed, again, **{"same_machine": True, **more}).kind


def as_far_as_needed(claimed, again):
    """As the command does: five runs more while it cannot be told, up to twenty."""
    return next(
        (kind for n in (5, 10, 15) if (kind := answer(claimed, again[:n])) != "cannot tell"), answer(claimed, again)
    )


def test_what_comes_out_again_is_consistent():
    rng = np.random.default_rng(1)
    found = reproduction(outcomes(rng, range(8)), outcomes(rng, range(100, 108)), same_machine=True)
    assert found.kind == "consistent"
    assert found.samples.low < 1 < found.samples.high
    assert found.pace.low < 1 < found.pace.high


def test_a_time_per_sample_that_nobody_gets_again_is_inconsistent_on_one_machine_only():
    rng = np.random.default_rng(2)
    claimed, again = outcomes(rng, range(5), pace=0.5), outcomes(rng, range(100, 105))
    found = reproduction(claimed, again, same_machine=True)
    assert (found.kind, found.pace.kind) == ("inconsistent", "inconsistent")
    assert found.reason == "re-runs need more than 1.25 times as much: time per sample"
    elsewhere = reproduction(claimed, again, same_machine=False)
    assert elsewhere.pace is None
    assert elsewhere.reason.endswith("times are not judged, since the machines differ or are not known")
    assert elsewhere.kind != "inconsistent"


def test_samples_that_nobody_reaches_the_target_with_are_inconsistent_on_any_machine():
    rng = np.random.default_rng(3)
    claimed, again = outcomes(rng, range(5), samples=0.5), outcomes(rng, range(100, 105))
    assert answer(claimed, again, same_machine=False) == "inconsistent"


def test_times_that_were_not_judged_are_not_called_consistent():
    rng = np.random.default_rng(1)
    claimed, again = outcomes(rng, range(8), pace=0.1), outcomes(rng, range(100, 108))
    assert answer(claimed, again, same_machine=False) == "samples consistent"


def test_a_claim_is_not_accused_because_of_other_code():
    rng = np.random.default_rng(3)
    claimed, again = outcomes(rng, range(5), samples=0.5), outcomes(rng, range(100, 105))
    found = reproduction(claimed, again, same_machine=True, other_code=True)
    assert found.kind == "cannot tell"
    assert found.reason.endswith("but the code is not what was recorded")


def test_times_under_other_conditions_do_not_accuse_but_samples_do():
    rng = np.random.default_rng(2)
    again = outcomes(rng, range(100, 105))
    assert answer(outcomes(rng, range(5), pace=0.5), again, conditions="other threads") == "cannot tell"
    assert answer(outcomes(rng, range(5), samples=0.4), again, conditions="other threads") == "inconsistent"


def test_slow_re_runs_on_a_busy_machine_do_not_accuse():
    rng = np.random.default_rng(2)
    claimed, again = outcomes(rng, range(5)), outcomes(rng, range(100, 110), pace=2)
    busy = [replace(each, doubted=True) for each in again]
    found = reproduction(claimed, busy, same_machine=True)
    assert found.kind == "cannot tell"
    assert found.reason.endswith("but the times of 10 of 10 re-runs are in doubt")
    assert answer(claimed, [*busy[:4], *again[4:]]) == "inconsistent"


def test_one_claimed_run_is_judged_by_the_spread_of_its_re_runs():
    rng = np.random.default_rng(4)
    again = outcomes(rng, range(20), spread=0.05)
    assert answer(outcomes(rng, [0], spread=0.05), again) == "consistent"
    assert answer(outcomes(rng, [0], pace=0.5, spread=0.05), again) == "inconsistent"


def test_a_target_that_is_missed_again_and_again_is_inconsistent():
    rng = np.random.default_rng(5)
    claimed = outcomes(rng, range(6))
    missed = [replace(each, reached=False) for each in outcomes(rng, range(100, 106))]
    found = reproduction(claimed, missed, same_machine=True)
    assert (found.kind, found.reached) == ("inconsistent", (6, 0))
    assert found.reason == "fewer re-runs reach the target than was claimed"


def test_two_runs_cannot_tell():
    rng = np.random.default_rng(6)
    assert answer(outcomes(rng, range(2)), outcomes(rng, range(100, 102))) == "cannot tell"


def test_without_runs_nothing_is_judged():
    with pytest.raises(UsageError, match="one of the sides has no runs"):
        reproduction([], outcomes(np.random.default_rng(0), range(3)), same_machine=True)


def test_the_same_seeds_are_compared_to_the_last_digit():
    first = ClaimedRun(3, True, 1.0, 10, digests=("a", "b"))
    (pair,) = same_seeds([first, replace(first, seed=4)], [replace(first, time_s=2.0)])
    assert (pair.seed, pair.bits) == (3, True)
    (pair,) = same_seeds([first], [replace(first, digests=("a", "c"))])
    assert pair.bits is False
    (pair,) = same_seeds([replace(first, digests=())], [first])
    assert pair.bits is None


def test_the_same_seeds_show_a_forgery_although_their_samples_are_whole_epochs():
    claimed = [ClaimedRun(at, True, 1.0, epochs * 1079 / 1.5) for at, epochs in enumerate((6, 4, 6, 6, 4))]
    again = [replace(each, samples=each.samples * 1.5) for each in claimed]
    assert answer(claimed, again, same_machine=False) == "inconsistent"
    assert answer(again, again, same_machine=False) == "samples consistent"


def whole_epochs(*epochs, digests=()):
    return [ClaimedRun(at, True, 1.0, each * 1079, digests=digests) for at, each in enumerate(epochs)]


def test_seeds_that_come_out_alike_twice_show_a_forgery_that_three_pairs_hide():
    claimed, again = whole_epochs(4, 3, 2), whole_epochs(7, 6, 4, digests=("a",))
    found = reproduction(claimed, again, same_machine=True)
    assert found.samples.kind == "cannot tell"
    assert repeated(found, claimed, again, again).kind == "inconsistent"
    assert repeated(found, again, again, again) == found


def test_seeds_that_come_out_otherwise_the_second_time_prove_nothing():
    claimed, again = whole_epochs(4, 3, 2), whole_epochs(7, 6, 4, digests=("a",))
    found = reproduction(claimed, again, same_machine=True)
    other = [*again[:2], replace(again[2], digests=("b",))]
    assert repeated(found, claimed, again, other) == found


def test_runs_of_further_seeds_do_not_make_the_same_ones_unclear():
    rng = np.random.default_rng(9)
    claimed, further = outcomes(rng, range(5), spread=0.35), outcomes(rng, range(5, 20), spread=0.35)
    found = reproduction(claimed, [*claimed, *further], same_machine=True)
    assert (found.samples.kind, found.samples.ratio) == ("consistent", pytest.approx(1.0))
    assert found.runs == (5, 20)


@pytest.mark.slow
def test_the_same_seeds_show_forgeries_that_the_luck_of_fresh_ones_hides():
    rng = np.random.default_rng(8)

    def tried(forged, noise):
        claimed = outcomes(rng, range(5), spread=0.35)
        again = [replace(each, samples=each.samples * np.exp(rng.normal(0, noise))) for each in claimed]
        return answer([replace(each, samples=each.samples / forged) for each in claimed], again, same_machine=False)

    for noise in (0.0, 0.03):
        assert [tried(1.5, noise) for _ in range(20)].count("inconsistent") == 20
        assert [tried(1.0, noise) for _ in range(300)].count("inconsistent") == 0


@pytest.mark.slow
def test_forgeries_of_one_and_a_half_are_found_and_honest_claims_are_not_accused():
    rng = np.random.default_rng(7)

    def tried(**forged):
        session = np.exp(rng.normal(0, 0.03))
        return as_far_as_needed(outcomes(rng, range(5), **forged), outcomes(rng, range(100, 120), pace=session))

    for size in (1.5, 1.7, 2.0, 3.0):
        assert [tried(pace=1 / size) for _ in range(20)].count("inconsistent") == 20
    assert [tried(samples=1 / 2) for _ in range(20)].count("inconsistent") >= 19
    honest = [tried() for _ in range(300)]
    assert honest.count("inconsistent") <= 3
    assert honest.count("consistent") >= 270
