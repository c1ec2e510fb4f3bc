"""Each planted fault is found and named, and the scheme without it passes."""

import re
from dataclasses import dataclass
from typing import ClassVar

import pytest

from levelbench.distributed.probes import gradients as learning
from levelbench.distributed.probes.schemes import check_scheme
from levelbench.distributed.scheme import Scheme, Traffic
from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.distributed.schemes.compressed import SparseTopK, Threshold
from levelbench.distributed.schemes.periodic import LocalSGD
from levelbench.errors import DefinitionError
from levelbench.planted import schemes_known as faults
from levelbench.planted.schemes_known import Plain, PlainStepper, scheme_of

pytestmark = pytest.mark.sampled(3)


def check(scheme, *only, ranks=(3,), framework="numpy"):
    return check_scheme(scheme, ranks=ranks, steps=4, seconds=2.0, only=only, framework=framework)


@pytest.mark.slow
def test_a_correct_scheme_passes_every_probe():
    report = check(Plain(), ranks=(2, 3))
    assert not report.failed
    assert {each.probe for each in report.findings if each.status == "passed"} >= {
        "well formed",
        "goes through",
        "initial broadcast",
        "ranks agree",
        "evaluated weights",
        "own memory",
        "gradients",
        "optimizer",
        "one process",
        "accumulation",
        "traffic",
        "determinism",
        "random delays",
        "unbuffered sends",
        "pauses",
        "lost rank",
        "phases",
        "every sample once",
    }


CONSISTENT = [
    (faults.NoBroadcast, "initial broadcast", r"rank 1, .*parameter that the rank starts with is its own"),
    (faults.NoBroadcastOfBuffers, "initial broadcast", r"'running_mean'.*buffer that the rank starts with is its own"),
    (faults.BroadcastFromTheLast, "initial broadcast", r"rank 0, .*is not that of rank 0"),
    (
        faults.RootDropped,
        "gradients",
        r"step 1: .* have weights 0, 0\.3333, 0\.3333; .*what rank 0 computed is dropped",
    ),
    (faults.SumForMean, "gradients", r"step 1: .* have weights 1, 1, 1; .*a sum instead of a mean"),
    (faults.MeanOfRanks, "gradients", r"step 2: .*each rank has the same weight, whatever its part of the batch"),
    (faults.MeanTwice, "gradients", r"divided by the number of ranks again"),
    (faults.OneHopTooFew, "gradients", r"rank 0, step 1: .* have weights 0\.3333, 0, 0\.3333.*what rank 1 .*dropped"),
    (faults.StaleBuffer, "gradients", r"no parameter moves"),
    (faults.AppliedTwice, "gradients", r"they are applied twice"),
    (faults.AppliedTwice, "optimizer", r"gets 'hidden.weight' 2 times at step 1"),
    (faults.UpdatesBeforeTheEnd, "gradients", r"only has its own gradient: it did not wait for the others"),
    (faults.LeavesOneOut, "gradients", r"'output.bias'.* does not move"),
    (faults.LeavesOneOut, "optimizer", r"no optimizer gets 'output.bias' at step 1"),
    (
        faults.FactorOfTheStepBefore,
        "gradients",
        r"step 2: .*the factor of the learning rate is that of the step before",
    ),
    (faults.FactorOfTheStepBefore, "optimizer", r"gets the factor 1 instead of 0\.9091 at step 2"),
    (faults.StepsFromZero, "optimizer", r"gets step 0 of 12"),
    (faults.SkipsEverySeventh, "goes through", r"the first wrong update: 3 ranks, rank \d, step 7"),
    (faults.OrderByRank, "goes through", r"called all_reduce\(sum, float64 \(8, 5\)\) where|called all_reduce.*where"),
    (faults.AveragesModels, "one process", r"with momentum, .* away from one process"),
    (faults.OwnOrderOfSums, "ranks agree", r"rank 1, step \d+, .* differs by .* from that of rank 0"),
    (faults.KeepsTheGradient, "own memory", r"it ends with a different value when gradients are overwritten"),
    (faults.SendsBeforeItReceives, "unbuffered sends", r"where sends wait for their receivers"),
    (faults.TriesAgain, "lost rank", r"rank 0 dies at its operation \d+ of \d+, and rank 1 keeps communicating"),
    (faults.GoesOnAlone, "lost rank", r"as if nothing had happened"),
    (faults.IgnoresNaN, "not finite", r"nan in the gradient of 3 ranks, rank 2, step 4 is swallowed"),
    (faults.ClipsGradients, "not finite", r"inf in the gradient .* all weights are finite"),
    (faults.OwnRandomNumbers, "determinism", r"a second run ends with different bits"),
    (faults.TalksInTheWrongPhase, "phases", r"waits for all_reduce in phase update"),
    (faults.MeetingMovesWeights, "pauses", r"a run with evaluations ends with different bits"),
]


@pytest.mark.parametrize(
    ("fault", "probe", "words"), CONSISTENT, ids=[f"{kind.__name__}-{probe}" for kind, probe, _ in CONSISTENT]
)
def test_a_fault_of_a_consistent_scheme_is_named(fault, probe, words):
    found = check(scheme_of(fault), probe).of(probe)
    assert any(_accuses(each, words) for each in found), found


def _accuses(finding, words):
    return finding.status == "failed" and re.search(words, finding.found) is not None


def test_a_scheme_that_refuses_gradients_that_are_not_finite_is_noted():
    found = check(scheme_of(faults.RefusesNaN), "not finite").of("not finite")
    assert {each.status for each in found} == {"noted"}
    assert "ends the run" in found[0].found


@pytest.mark.parametrize(
    ("fault", "probe", "words"),
    [
        (faults.Lopsided, "every worker counts", r"the gradients of the workers have weights"),
        (faults.LosesARank, "every worker counts", r"after 300 steps .* have mean weights 0\.\d+, 0, 0\.\d+"),
        (
            faults.AveragesAlike,
            "every worker counts",
            r"have weights 0\.3333, 0\.3333, 0\.3333; their shares are 0\.2, 0\.4, 0\.4",
        ),
        (
            faults.EvaluatesItsOwn,
            "evaluated weights",
            r"differs between ranks 0 and 1, and averaged\(\) returns nothing",
        ),
        (faults.Climbs, "learns", r"does not fall as it should"),
    ],
)
def test_a_fault_of_an_inconsistent_scheme_is_named(fault, probe, words, monkeypatch):
    monkeypatch.setattr(learning, "ATTEMPTS", ((0.1, 40),))
    found = check(scheme_of(fault, consistent=False, replicated=False), probe).of(probe)
    assert any(_accuses(each, words) for each in found), found


def test_neighbours_that_do_not_expect_each_other_are_found():
    scheme = scheme_of(faults.OffByOneNeighbour, consistent=False, replicated=False)
    (found,) = check(scheme, "traffic", ranks=(4,)).of("goes through")
    assert _accuses(found, r"all ranks wait for each other: .*exchange")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (faults.NeverEnds, r"rank 1: step 3, in its operation \d+, all_reduce"),
        (faults.AsksForEver, r"(nothing came in|nothing has happened for) .*rank 1: step 3"),
    ],
)
def test_a_rank_that_never_ends_does_not_block_the_check(fault, words):
    report = check_scheme(scheme_of(fault), ranks=(2,), seconds=0.1)
    assert _accuses(report.of("goes through")[0], words)
    assert {each.status for each in report.findings[2:]} == {"not tried"}


def test_an_error_of_a_rank_is_reported_with_its_place():
    found = check(scheme_of(faults.Raises), "traffic").of("goes through")[0]
    assert _accuses(found, r"rank 1 raised ZeroDivisionError: of the scheme \(.*rank 1: step 3")


def test_a_misdeclared_traffic_is_found():
    (found,) = check(faults.Misdeclared(), "traffic").of("traffic")
    assert _accuses(found, r"rank 0: it sends .* B in 25 messages per step, but declares .* B in 24 messages")


@dataclass(frozen=True)
class OneMessageTooMany(AllReduce):
    """Its declaration is right on all numbers of ranks but five."""

    def traffic(self, parameters, itemsize, size, rank):
        return super().traffic(parameters, itemsize, size, rank) + Traffic(0, int(size == 5))


def test_a_traffic_that_is_misdeclared_on_other_ranks_than_those_asked_for_is_found():
    (found,) = check(OneMessageTooMany(), "traffic").of("traffic")
    assert _accuses(found, r"5 ranks, rank 0: it sends .* but declares")


def test_rounds_after_a_warm_up_of_single_steps_send_what_is_declared():
    (found,) = check(LocalSGD(period=4, post_local=8), "traffic").of("traffic")
    assert found.status == "passed"


@dataclass(frozen=True)
class Streams(SparseTopK):
    """A user's scheme, whose docstring does not tell what it sends."""

    exchange_by: str = "doubling"
    ratio: float = 0.1
    times: float = 1.0

    def traffic(self, parameters, itemsize, size, rank):
        return super().traffic(parameters, itemsize, size, rank) * self.times


@pytest.mark.parametrize(
    ("scheme", "status"),
    [
        (Streams(), "noted"),
        (Streams(times=1.15), "failed"),
        (Streams(times=0.85), "failed"),
        (Streams(exchange_by="gather"), "passed"),
        (Streams(exchange_by="gather", times=1.02), "failed"),
        (Streams(exchange_by="gather", warmup_steps=9), "passed"),
        (Streams(exchange_by="gather", warmup_steps=60), "passed"),
        (Threshold(), "noted"),
        (Threshold(expected=0.2), "failed"),
    ],
)
def test_traffic_is_exact_or_within_the_factor_that_the_scheme_declares(scheme, status):
    (found,) = check(scheme, "traffic", ranks=(4,)).of("traffic")
    assert found.status == status


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            faults.ForgetsItsFeedback,
            r"3 ranks, rank 0, step 6, 'hidden.weight': different bits, in fresh ranks .*step 5",
        ),
        (faults.RestoresNothing, r"step 6, .* different bits"),
        (faults.ForgetsTheOptimizer, r"step 6, .* different bits"),
        (faults.OnlyTheFirstKeepsIt, r"step 6, .* different bits"),
        # When the bits differ depends on how the processor rounds.
        (faults.GoesOnFromAnothersState, r"step [6-8], .* different bits"),
        (faults.ForgetsHowFarTheRoundIs, r"step [68], .* different bits"),
        (faults.IsChangedByKeeping, r"a run that saves its state ends with different bits"),
        (faults.TakesInWhatIsUnderWay, r"a run that saves its state ends with different bits"),
        (faults.KeepsText, r"'name' of its state has dtype <U6"),
        (faults.HasNoState, r"HasNoState keeps no state"),
    ],
)
def test_an_incomplete_state_is_found(fault, words):
    (found,) = check(scheme_of(fault, consistent=False, replicated=False), "checkpoints").of("checkpoints")
    assert _accuses(found, words), found


@pytest.mark.parametrize("kind", [faults.Feeds, faults.KnowsHowFarTheRoundIs])
def test_a_complete_state_passes(kind):
    (found,) = check(scheme_of(kind, consistent=False, replicated=False), "checkpoints").of("checkpoints")
    assert (found.status, found.found) == (
        "passed", "saved after steps 5 and 6, fresh ranks resume with the same bits",
    )  # fmt: skip


def test_a_scheme_that_does_not_declare_its_state_complete_is_noted():
    (found,) = check(Plain(), "checkpoints").of("checkpoints")
    assert found.status == "noted"
    assert "PlainStepper does not declare" in found.found
    assert "kept = True" in found.do


def test_without_lockstep_checkpoints_are_compared_with_a_single_worker():
    fault = scheme_of(faults.ForgetsItsFeedback, consistent=False, replicated=False, lockstep=False)
    (found,) = check(fault, "checkpoints").of("checkpoints")
    assert _accuses(found, r"1 ranks, rank 0, step 6")


class TestForm:
    def test_a_mutable_scheme_is_found(self):
        (found,) = check(_Loose(), "well formed").failed
        assert found.found == "it is not a dataclass"

    def test_a_missing_claim_is_found(self):
        (found,) = check(_Silent(), "well formed").failed
        assert found.found == "replicated is None"

    def test_a_setting_that_users_cannot_write_is_found(self):
        (found,) = check(_Odd(), "well formed").failed
        assert found.found == "the setting 'sizes' is a tuple"

    def test_an_unusable_name_is_found(self):
        (found,) = check(scheme_of(PlainStepper, name="My Scheme"), "well formed").failed
        assert "'My Scheme'" in found.found


class _Loose(Scheme):
    name, source, consistent, replicated = "loose", "none", True, True
    stepper, start, traffic = PlainStepper, Plain.start, Plain.traffic


@dataclass(frozen=True)
class _Silent(Plain):
    replicated: ClassVar[bool] = None


@dataclass(frozen=True)
class _Odd(Plain):
    sizes: tuple = (1, 2)


def test_a_scheme_of_another_framework_is_not_tried():
    (found,) = check(scheme_of(PlainStepper, frameworks=("torch",))).findings
    assert (found.status, found.do) == ("not tried", "--framework torch")


def test_a_check_of_one_rank_is_refused():
    with pytest.raises(DefinitionError, match="nothing to see"):
        check(Plain(), ranks=(1,))


def test_a_check_on_torch_finds_the_same():
    pytest.importorskip("torch")
    report = check(scheme_of(faults.SumForMean), "gradients", framework="torch")
    assert "a sum instead of a mean" in report.failed[0].found


def test_rounds_that_follow_the_learning_rate_are_expected_traffic():
    (finding,) = check(LocalSGD(period=2, growth=0.5), "traffic").of("traffic")
    assert (finding.status, "an expectation" in finding.found) == ("noted", True)
