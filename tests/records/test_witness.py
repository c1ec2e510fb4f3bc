"""Readings of other clocks: what is a doubt, what is refused, and what a busy machine may do."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from levelbench.records import End, Evaluation, Measurement, summarise
from levelbench.records.integrity import contradictions
from levelbench.records.reader import Record
from levelbench.records.schema import Sight, Target, Witness
from levelbench.records.witness import CHANCE, UNTRAINED, witness_contradictions, witness_doubts

SECOND = 1_000_000_000


def sight(evaluations, run_ns, *, by=1.0, late_ns=0, parent=True):
    """A moment at ``run_ns`` on the run's clock, when all other clocks have counted ``by`` times as much."""
    true = round(run_ns * by)
    between = (true, true + late_ns)
    uptime = (true // 10_000_000 * 10_000_000, (true + late_ns) // 10_000_000 * 10_000_000 + 10_000_000)
    return Sight(evaluations, (run_ns, run_ns + late_ns), between if parent else None, between, uptime)


@pytest.fixture
def witnessed(make_header):
    """A record of evaluations at these times, with these sights."""

    def make(times_ns, sights, end_ns=None, **changes):
        curve = tuple(
            Evaluation(each, at, float(at), at * 64, {"validation": 0.9}, 1.0, {"forward": each})
            for at, each in enumerate(times_ns, 1)
        )
        last = end_ns or times_ns[-1]
        end = End("done", last, {"forward": last}, witness=Witness(sights, **changes))
        return Record(Path("r.jsonl"), make_header(), curve, {}, (), end, "done")

    return make


TIMES = [2 * SECOND, 4 * SECOND, 6 * SECOND]


def seen(by=1.0, **given):
    return [sight(at, each, by=by, **given) for at, each in enumerate([0, *TIMES])]


def test_clocks_that_agree_are_no_doubt(witnessed):
    record = witnessed(TIMES, seen())
    assert (witness_doubts(record), witness_contradictions(record)) == ([], [])


def test_more_evaluations_seen_by_other_clocks_than_there_are_is_a_contradiction(witnessed):
    record = witnessed(TIMES[:2], seen())
    assert "other clocks saw 3 evaluations of it, and it has 2" in witness_contradictions(record)


def test_a_record_of_the_first_schema_without_a_witness_is_read(witnessed):
    record = witnessed(TIMES, seen())
    record = replace(record, end=msgspec.structs.replace(record.end, witness=None))
    assert (witness_doubts(record), witness_contradictions(record)) == ([], [])


def test_a_record_of_the_current_schema_without_a_witness_is_doubted(witnessed):
    record = witnessed(TIMES, seen())
    record = replace(record, end=msgspec.structs.replace(record.end, witness=None), checksum="c")
    assert witness_doubts(record) == ["no other clock watched its own: run it again with levelbench run"]


COUNTED = {"load": {"counters": {"at_s": 1.0}}}
WITNESS = "it lacks the readings of other clocks, which every run has at its end"


@pytest.mark.parametrize(
    ("changes", "measured", "found"),
    [
        ({}, True, []),
        ({"witness": None}, True, [WITNESS]),
        ({"witness": Witness(seen()[:1])}, True, [WITNESS]),
        (
            {"environment_after": {}},
            True,
            ["the machine's counters were read before it, and its end lacks them"],
        ),
        ({}, "no meters", ["it lacks the readings of peak_memory, energy, which every run has at its end"]),
        ({}, False, ["it lacks the quality of its untrained network, which every run has at its end"]),
    ],
)
def test_a_reading_that_every_run_has_at_its_end_must_not_be_missing(witnessed, changes, measured, found):
    record = witnessed(TIMES, seen())
    header = msgspec.structs.replace(record.header, environment={"before_clock": {"cpu_s": 1.0}, **COUNTED})
    end = msgspec.structs.replace(record.end, **{"environment_after": COUNTED, **changes})
    untrained = (Measurement(UNTRAINED, "accuracy", 0.1, "64 validation examples, after the run"),) * bool(measured)
    meters = ["cpu_utilisation"] if measured == "no meters" else ["peak_memory", "energy", "cpu_utilisation"]
    readings = (*untrained, *(Measurement(name, "", None, None, "not available") for name in meters))
    record = replace(record, header=header, end=end, measurements=readings, checksum="c")
    assert witness_contradictions(record) == found


def test_clocks_a_hundredth_apart_are_a_doubt(witnessed):
    record = witnessed(TIMES, seen(1.03))
    assert any("the process that started it" in each for each in witness_doubts(record))
    assert witness_contradictions(record) == []


@pytest.mark.parametrize("by", [0.5, 10.0])
def test_clocks_a_tenth_apart_are_refused(witnessed, by):
    found = witness_contradictions(witnessed(TIMES, seen(by)))
    assert len(found) == 3
    assert any("the process that started it" in each for each in found)


def test_one_clock_that_disagrees_is_enough_to_refuse(witnessed):
    sights = seen()
    sights[-1] = msgspec.structs.replace(sights[-1], uptime_ns=(60 * SECOND, 60 * SECOND + 10_000_000))
    assert witness_contradictions(witnessed(TIMES, sights)) == [
        "at its end its clock had counted 6 s and the kernel 59.99 s"
    ]


def test_contradictions_of_the_witness_are_in_the_summary(witnessed):
    record = witnessed(TIMES, seen(10.0))
    assert all(each in str(summarise(record)) for each in witness_contradictions(record))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 5 * SECOND), min_size=3, max_size=3), st.integers(SECOND // 2, 3 * SECOND))
def test_delayed_messages_never_refuse_an_honest_run(make_header, waits, run_ns):
    """Readings of the parent, and of the run itself, may be delayed by any time."""
    first = Sight(0, (-waits[0], 0), (0, 0), (-waits[0], 0), None)
    sights = [first]
    for at, wait in enumerate(waits, 1):
        now = at * run_ns
        sights.append(Sight(at, (now, now + 10), (0, now + wait), (now, now + 10), None))
    end = Sight(3, (sights[-1].run_ns[0], sights[-1].run_ns[0] + waits[2]), sights[-1].parent_ns, (0, 10**12), None)
    witness = Witness([*sights, end])
    curve = tuple(
        Evaluation(each.run_ns[0], at, 1.0, at, {"validation": 0.9}, 1.0, {}) for at, each in enumerate(sights[1:], 1)
    )
    record = Record(Path("r"), make_header(), curve, {}, (), End("done", end.run_ns[0], {}, witness=witness), "done")
    assert witness_contradictions(record) == []


@pytest.mark.parametrize(("count", "refused"), [(1, False), (2, True)])
def test_early_times_of_fewer_than_three_moments_are_not_refused(witnessed, count, refused):
    times = TIMES[:count]
    found = witness_contradictions(witnessed([each // 3 for each in times], seen()[: count + 1], end_ns=times[-1] // 3))
    assert ("the times of its evaluations are earlier than those at which they were made" in found) is refused


def test_backdated_evaluations_are_refused(witnessed):
    """Their times are a third of those at which the clock was read right after them."""
    found = witness_contradictions(witnessed([each // 3 for each in TIMES], seen(), end_ns=TIMES[-1] // 3))
    assert found == ["the times of its evaluations are earlier than those at which they were made"]


def test_an_evaluation_later_than_its_own_clock_is_refused(witnessed):
    found = witness_contradictions(witnessed([TIMES[0], 5 * SECOND, TIMES[2]], seen()))
    assert found == ["an evaluation has a later time than the clock that it was taken from"]


def test_a_parent_that_gave_no_answer_is_a_doubt(witnessed):
    found = witness_doubts(witnessed(TIMES, seen(parent=False), absent="its parent is gone"))
    assert found == ["no other process watched its clock (its parent is gone): run it again"]


def test_a_suspended_machine_is_a_doubt_and_not_a_contradiction(witnessed):
    """Only the kernel's count goes on in its sleep."""
    sights = seen()
    sights[-1] = msgspec.structs.replace(sights[-1], uptime_ns=(66 * SECOND, 66 * SECOND + 10_000_000))
    record = witnessed(TIMES, sights, slept_ns=60 * SECOND)
    assert witness_contradictions(record) == []
    assert witness_doubts(record) == ["the machine was suspended for 60 s while it ran: keep the machine awake"]


@pytest.mark.parametrize(
    ("value", "target", "chance", "refused", "doubted"),
    [
        (0.5, 0.9, 0.1, False, False),
        (0.99, 0.9, 0.1, True, False),
        (0.99, 0.9, None, False, True),
        (0.12, 0.05, 0.11, False, True),
        (0.7, 0.6, 0.5, False, True),
        (0.98, 0.6, 0.5, False, True),
        (None, 0.9, None, False, False),
    ],
)
def test_an_untrained_network_that_reaches_the_target_is_refused_unless_it_may_be_luck(
    witnessed, make_header, value, target, chance, refused, doubted
):
    record = witnessed(TIMES, seen())
    untrained = Measurement(UNTRAINED, "top1", value, "500 validation examples, after the run")
    measured = (untrained, Measurement(CHANCE, "top1", chance, "the share"))[: 1 if chance is None else 2]
    record = replace(record, header=make_header(target=Target("top1", target)), measurements=measured)
    said = f"its network had top1 {value} before it was trained, and the target is {target}"
    assert witness_contradictions(record) == [said] * refused
    assert witness_doubts(record) == [f"{said}: choose another target"] * doubted


@pytest.mark.parametrize(("kept", "found"), [([], ["2 cores busy"]), (["1.7 cores busy"], ["1.7 cores busy"])])
def test_a_removed_doubt_about_the_machine_is_derived_again(witnessed, monkeypatch, kept, found):
    monkeypatch.setattr("levelbench.measure.environment.doubts", lambda before, after: ["2 cores busy"])
    record = witnessed(TIMES, seen())
    record = replace(record, end=msgspec.structs.replace(record.end, suspect=kept), checksum="c")
    assert summarise(record).suspect[: len(found)] == found
    assert summarise(record).suspect.count("2 cores busy") == (not kept)


def test_fewer_examples_allow_an_untrained_network_more_luck(witnessed, make_header):
    """Of ten classes alike, by luck up to the larger of 0.55 and five standard deviations."""
    spread = (0.1 * 0.9 * (0.1 + 1 / 4)) ** 0.5
    limit = 0.1 + 5 * spread
    for value, refused in ((limit - 0.01, False), (limit + 0.01, True)):
        measured = (
            Measurement(UNTRAINED, "top1", value, "4 validation examples, after the run"),
            Measurement(CHANCE, "top1", 0.1, "the share"),
        )
        record = replace(
            witnessed(TIMES, seen()), header=make_header(target=Target("top1", 0.6)), measurements=measured
        )
        assert bool(witness_contradictions(record)) == refused


def test_a_time_later_than_its_clock_by_less_than_a_thousandth_is_accepted(witnessed):
    for late_ns, refused in ((SECOND // 1000, False), (SECOND // 20, True)):
        record = witnessed([TIMES[0], TIMES[1] + late_ns, TIMES[2]], seen())
        assert bool(witness_contradictions(record)) == refused


def test_a_calendar_that_was_set_back_is_a_doubt_if_other_clocks_agree(witnessed):
    record = witnessed(TIMES, seen())
    end = msgspec.structs.replace(record.end, environment_after={"time": "2026-03-01T11:00:00+00:00"})
    record = replace(record, end=end)
    said = "its environment was captured after it"
    assert not [each for each in (*witness_contradictions(record), *contradictions(record)) if said in each]
    assert any("the calendar time was set back" in each for each in witness_doubts(record))
    alone = replace(record, end=msgspec.structs.replace(end, witness=None))
    assert any(said in each for each in contradictions(alone))
