"""A record that contradicts itself is found and refused; a record of an honest run never is."""

from __future__ import annotations

import msgspec
import pytest
from tests.records.stores import resealed

from levelbench.errors import RecordError
from levelbench.records import (
    DatasetFacts,
    Distribution,
    End,
    Evaluation,
    Measurement,
    RankSamples,
    Samples,
    Store,
    new_id,
    read_record,
    summarise,
)
from levelbench.records.integrity import require_consistent
from levelbench.records.schema import Witness

SECOND = 1_000_000_000
TEAM = Distribution(2, "all-reduce", {}, "process", "gloo")
MACHINE = {"cores_logical": 2, "cores_allowed": 2}


def counters(at_s, own_s, busy_s):
    return {"at_s": at_s, "own_s": own_s, "busy_s": busy_s, "idle_s": 2 * at_s - busy_s, "steal_s": 0.0}


@pytest.fixture
def found(tmp_path, make_header, make_events, make_run):
    """The contradictions of a run of three seconds, with changes to one event or to the whole list."""

    def of(kind=None, number=0, *, events=None, whole=None, header=None, **changes):
        rows = make_events(stopped_by="target reached") if events is None else events
        if kind is not None:
            place = [at for at, each in enumerate(rows) if isinstance(each, kind)][number]
            rows = [*rows[:place], msgspec.structs.replace(rows[place], **changes), *rows[place + 1 :]]
        rows = whole(rows) if whole else rows
        head = msgspec.structs.replace(header or make_header(), id=new_id())
        return summarise(read_record(make_run(tmp_path, head, rows))).contradictions

    return of


def scaled(factor, *kinds):
    def change(rows):
        return [
            msgspec.structs.replace(
                each,
                t_ns=sum(round(ns * factor) for ns in each.phases_ns.values()),
                phases_ns={name: round(ns * factor) for name, ns in each.phases_ns.items()},
            )
            if isinstance(each, kinds)
            else each
            for each in rows
        ]

    return change


def test_a_consistent_record_has_no_contradiction(found):
    assert found() == []


def test_a_key_that_does_not_match_the_specification_is_found(found, make_header):
    header = make_header()
    (said,) = found(header=msgspec.structs.replace(header, key="0" * 64))
    assert said == f"its key begins with 00000000, and that of its specification with {header.key[:8]}"


def test_times_that_are_scaled_without_the_raw_steps_are_found(found):
    (said,) = found(whole=scaled(0.3, Evaluation, End))
    assert said == "the steps between steps 0 and 10 took 0.75 s, and training took 0.225 s in all"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"t_ns": 4 * SECOND}, "at step 20 the phases sum to 2 s where the run's time is 4 s"),
        ({"step": 25}, "at step 25 the epoch is 2, with 10 steps an epoch"),
        ({"step": 10, "epoch": 1.0}, "the evaluation at step 10 comes after that at step 10"),
        ({"samples": 641}, "at step 20 there were 1 examples in 10 steps since the previous evaluation"),
        ({"epoch": 0.5}, "at step 20 the epoch is 0.5 after 1"),
        ({"quality": {"validation": 1.2}}, "at step 20 validation is 1.2, on a scale from 0 to 1"),
        ({"quality": {"validation": -0.2}}, "at step 20 validation is -0.2, on a scale from 0 to 1"),
        ({"loss": None}, "at step 20 the loss had diverged, and training went on"),
        ({"loss": 21.0}, "at step 20 the loss had diverged, and training went on"),
    ],
)
def test_an_impossible_evaluation_is_found(found, change, said):
    assert said in found(Evaluation, 1, **change)


def test_a_phase_that_shrinks_is_found(found, make_curve):
    grown = {**make_curve([0.5])[0].phases_ns, "data": SECOND}
    said = found(Evaluation, 0, phases_ns=grown, t_ns=sum(grown.values()))
    assert "at step 20 the phase data has 0.5 s after 1 s" in said


def test_swapped_dropped_or_duplicated_evaluations_are_found(found):
    def at(rows, number):
        return [place for place, each in enumerate(rows) if isinstance(each, Evaluation)][number]

    def swapped(rows):
        one, two = at(rows, 0), at(rows, 1)
        return [rows[{one: two, two: one}.get(place, place)] for place in range(len(rows))]

    assert found(whole=swapped)
    assert found(whole=lambda rows: [*rows[: at(rows, 1)], *rows[at(rows, 1) + 1 :]])
    assert found(whole=lambda rows: [*rows[: at(rows, 1)], rows[at(rows, 1)], *rows[at(rows, 1) :]])


def test_step_times_that_are_missing_or_too_many_are_found(found):
    for count in (9, 11):
        assert found(Samples, 0, values=[70_000_000] * count) == [f"it has {20 + count} step times, and made 30 steps"]
    assert found(Samples, 0, values=[0.5] * 10) == ["its step times are not whole nanoseconds"]
    assert found(whole=lambda rows: [each for each in rows if not isinstance(each, Samples)]) == [
        "it has 0 step times, and made 30 steps"
    ]


def test_an_interrupted_run_may_have_steps_beyond_its_last_evaluation(found):
    assert found(whole=lambda rows: [*rows[:4], Samples("step_time", "ns", [1] * 3)]) == []


def test_steps_that_are_much_shorter_than_training_are_found(found):
    assert found(whole=scaled(10.0, Evaluation, End)) == ["its steps took 2.25 s, and computing alone 15 s"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"quality": {"validation": 0.99, "test": 0.9}},
            "validation is 0.99 at the end, and 0.92 at the last evaluation",
        ),
        ({"t_ns": 1}, "at the end the phases sum to 3 s where the run's time is 1e-09 s"),
        ({"error": "no"}, "it ended because of 'target reached', and its error is 'no'"),
        ({"stopped_by": "plateau: no better in 3 evaluations"}, "which its last evaluation does not show"),
        ({"stopped_by": "budget of 9 s spent"}, "which its last evaluation does not show"),
        (
            {"phases_ns": {"data": SECOND, "forward": SECOND * 3 // 2, "evaluate": SECOND}, "t_ns": 7 * SECOND // 2},
            "at the end the phase data has 1 s, and 0.75 s when training was over",
        ),
    ],
)
def test_an_end_that_does_not_follow_from_the_last_evaluation_is_found(found, change, said):
    assert any(said in each for each in found(End, **change))


def test_a_target_that_no_evaluation_reached_is_found(found, make_events):
    said = found(events=make_events((0.5, 0.6), stopped_by="target reached"))
    assert said == ["it ended because the target was reached, and its evaluations do not reach it"]


def test_a_share_that_the_split_does_not_have_is_found(found, make_header, make_events):
    target = msgspec.structs.replace(make_header().specification.target, metric="top1")
    facts = DatasetFacts("digits", {"validation": 359, "test": 359}, {}, "by index", "CC0")
    fair = [
        make_events((300 / 359, 330 / 359, 331 / 359), dataset=facts, quality=each) for each in _qualities(331 / 359)
    ]
    assert [found(events=rows, header=make_header(target=target)) for rows in fair] == [
        [],
        [
            "at the end test is 0.89, which is not a share of 359 examples: "
            "a metric that counts differently needs another name"
        ],
    ]


def _qualities(last):
    return {"validation": last, "test": 320 / 359}, {"validation": last, "test": 0.89}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"budget_s": 1.5}, "at step 20 the budget of 1.5 s was spent, and training went on"),
        ({"budget_samples": 1000}, "at step 20 the budget of 1000 samples was spent, and training went on"),
        ({"budget_epochs": 2.0}, "it made 30 steps, and 2 epochs are 20"),
        ({"evaluate_every": "2 epochs"}, "evaluation 1 is at step 10 and not at step 20, where an interval"),
        ({"evaluate_every": "4 steps"}, "evaluation 1 is at step 10 and not at step 4, where an interval"),
    ],
)
def test_evaluations_that_the_specification_does_not_allow_are_found(found, make_header, parts, said):
    assert any(said in each for each in found(header=make_header(**parts)))


def test_a_plateau_that_was_passed_is_found(found, make_header, make_events):
    head, rows = make_header(plateau=2), make_events((0.5, 0.5, 0.5, 0.5))
    assert found(events=rows, header=head) == [
        "at step 30 there had been no better quality in 2 evaluations, and training went on"
    ]


def test_a_specification_or_source_that_does_not_match_its_digest_is_found(found, make_header):
    head = make_header()
    other = msgspec.structs.replace(head, specification=msgspec.structs.replace(head.specification, settings={"lr": 9}))
    assert "and that of its specification with" in found(header=other)[0]
    source = msgspec.structs.replace(head.source, text="another")
    assert found(header=msgspec.structs.replace(head, source=source)) == [
        "the digest of its source is not that of the source's text"
    ]


def test_a_start_far_from_the_capture_of_the_environment_is_found(found, make_header):
    environment = {"time": "2026-03-01T11:59:59+00:00"}
    head = msgspec.structs.replace(make_header(), environment=environment)
    assert found(header=head) == []
    (said,) = found(header=msgspec.structs.replace(head, started="2026-03-01T11:00:00.000+00:00"))
    assert said.startswith("it started at 2026-03-01T11:00:00.000+00:00, and its environment was captured at")


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (counters(103.5, 5.0, 6.0), None),
        (counters(102.9, 5.0, 6.0), "the run took 3 s, and 2.9 s passed between the readings around it"),
        (counters(103.5, 12.0, 12.0), "the process spent 11 s of processor time in 3.5 s on 2 cores"),
        ({**counters(103.5, 5.0, 6.0), "busy_s": 40.0}, "all processors spent"),
        (counters(103.5, 1.5, 2.0), "the meter read 0.5 of 2 cores over 3 s, and the process spent 0.5 s"),
    ],
)
def test_more_time_or_processor_time_than_the_machine_had_is_found(found, make_header, make_events, after, said):
    environment = {"machine": MACHINE, "load": {"counters": counters(100.0, 1.0, 1.0)}}
    head = msgspec.structs.replace(make_header(), environment=environment)
    rows = make_events(environment_after={"load": {"counters": after}})
    rows.insert(-1, Measurement("cpu_utilisation", "share", 0.5, "getrusage"))
    told = found(events=rows, header=head)
    assert told == [] if said is None else told[0].startswith(said)


@pytest.mark.parametrize(("kernel_s", "told"), [(3.6, False), (600.0, False), (1.75, True)])
def test_a_clock_that_is_faster_than_the_kernels_is_found(found, make_header, make_events, kernel_s, told):
    before = {**counters(100.0, 1.0, 1.0), "uptime_from_s": 100.0, "uptime_to_s": 100.01}
    after = {**counters(103.5, 5.0, 6.0), "uptime_from_s": 99.99 + kernel_s, "uptime_to_s": 100.0 + kernel_s}
    head = msgspec.structs.replace(make_header(), environment={"machine": MACHINE, "load": {"counters": before}})
    said = found(events=make_events(environment_after={"load": {"counters": after}}), header=head)
    assert said == ["3.5 s passed by its clock, and 1.75 s by the kernel's"] * told


def test_an_evaluation_that_reaches_the_target_is_the_last_one(found, make_header, make_events):
    rows = make_events(stopped_by="target reached")
    places = [at for at, each in enumerate(rows) if isinstance(each, Evaluation)]
    for at in places[:2]:
        rows[at] = msgspec.structs.replace(rows[at], quality={"validation": 1.0})
    header = msgspec.structs.replace(
        make_header(), specification=msgspec.structs.replace(make_header().specification, crossing="confirmed")
    )
    assert any("the target was reached, and training went on" in each for each in found(events=rows, header=header))


@pytest.mark.parametrize("words", ["it resumed from", "it went on from"], ids=["now", "older records"])
def test_a_resumed_run_may_have_the_time_of_an_earlier_process_on_its_clock(found, make_header, make_events, words):
    environment = {"machine": MACHINE, "load": {"counters": counters(100.0, 1.0, 1.0)}}
    head = msgspec.structs.replace(make_header(), environment=environment)
    after = {"load": {"counters": counters(101.5, 2.0, 2.0)}}
    said = {"before_ns": 2 * SECOND, "suspect": [f"{words} a checkpoint at step 10: what came after is lost"]}
    assert found(events=make_events(environment_after=after, **said), header=head) == []
    (unsaid,) = found(events=make_events(environment_after=after, before_ns=2 * SECOND), header=head)
    assert "it does not say that it resumed" in unsaid
    assert found(events=make_events(environment_after=after), header=head) != []


def test_what_a_rank_recorded_must_match_the_run(found, make_header, make_events):
    rows = make_events()
    times = [value for each in rows if isinstance(each, Samples) for value in each.values]
    head = make_header(distribution=TEAM)

    def of(rank, values, talk=()):
        talked = [RankSamples(rank, "communicate_time", "ns", talk)] if talk else []
        return found(events=[*rows[:-1], RankSamples(rank, "step_time", "ns", values), *talked, rows[-1]], header=head)

    assert of(0, times) == of(1, times[::-1]) == []
    assert of(1, times[1:]) == ["rank 1 has 29 step times, and the run made 30 steps"]
    assert of(0, times[::-1]) == ["the step times of rank 0 are not those of the run"]
    assert of(1, times, [SECOND] * 30) == ["rank 1 communicated for longer than a step took"]


def test_a_run_that_is_done_without_an_evaluation_is_found(found, make_events):
    assert found(events=make_events()[-1:]) == ["it is done and has no evaluation"]


def test_a_run_that_contradicts_itself_is_refused_with_its_name_and_why(tmp_path, make_header, make_events, make_run):
    fine = summarise(read_record(make_run(tmp_path, make_header())))
    assert require_consistent(fine) is fine
    path = make_run(tmp_path, make_header(), scaled(0.3, Evaluation, End)(make_events()))
    run = summarise(read_record(path))
    with pytest.raises(RecordError, match=rf"the run {run.id} in .*contradicts itself: the steps between .*copy"):
        require_consistent(run)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"id": "0123456789abcdef"}, "an id of 16 digits"),
        ({"planned_effect": 0.1}, "a planned effect"),
        ({"quality": "aa"}, "digests of the task's quality and data"),
        ({"witness": Witness([])}, "what other clocks saw"),
    ],
)
def test_a_record_of_schema_1_with_later_additions_is_found(tmp_path, make_header, make_events, make_run, parts, said):
    def contradictions_of(**more):
        head = msgspec.structs.replace(make_header(id="01234567"), schema=1, **more)
        return summarise(read_record(make_run(tmp_path / str(len(more)), head, events))).contradictions

    events = make_events(stopped_by="target reached")
    assert contradictions_of() == []
    if "quality" in parts:
        parts = {"source": msgspec.structs.replace(make_header().source, **parts)}
    elif "witness" in parts:
        events[-1] = msgspec.structs.replace(events[-1], **parts)
        parts = {"version": "0.1.1"}
    assert contradictions_of(**parts)[0] == f"it says that it is of schema 1, which never had {said}"


def test_steps_of_a_short_run_that_are_shorter_than_its_computing_are_found(found):
    times = [7_500_000 - each for each in range(1, 11)]
    assert "its steps took" in found(whole=lambda rows: [
        Samples("step_time", "ns", times) if isinstance(each, Samples) else each for each in rows
    ])[0]  # fmt: skip


def test_a_run_that_ends_with_all_epochs_done_before_they_are_is_found(found, make_header, make_events):
    def events(**settings):
        header = make_header(crossing="final", settings=settings)
        return found(events=make_events((0.5, 0.6, 0.7), stopped_by="all epochs done"), header=header)

    assert events(epochs=20) == ["it ended because all epochs were done, after 3 of 10"]
    assert events(epochs=3) == []
    assert events(lr=0.1) == [], "how many its recipe planned is not known"


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"name": "torch", "device": "cpu"}, ["its specification has the framework numpy, and its environment torch"]),
        (
            {"name": "numpy", "device": "cpu", "version": "0"},
            ["its framework numpy has version 0 and, among the libraries, 1"],
        ),
        ({"name": "numpy", "device": "H200"}, ["its specification has the device cpu, and its environment H200"]),
        ({"name": "numpy", "device": "cpu"}, []),
        ({"name": "numpy", "device": "cpu", "version": "1+cu130"}, []),
        ({}, []),
    ],
)
def test_a_framework_or_device_that_does_not_match_the_environment_is_found(found, make_header, environment, said):
    head = make_header()
    facts = {**head.environment, "libraries": {"numpy": "1"}, "framework": environment}
    assert found(header=msgspec.structs.replace(head, environment=facts)) == said


@pytest.mark.parametrize(
    ("measurement", "said"),
    [
        (Measurement("peak_memory", "B", -5e6, "vmhwm-reset"), "its peak_memory is -5e+06 B"),
        (Measurement("energy", "J", 1e9, "rapl"), "its energy is 1e+09 J in 3 s, more than any machine takes"),
        (Measurement("energy", "J", 1e-6, "rapl"), "its energy is 1e-06 J in 3 s, less than any machine takes"),
        (Measurement("energy", "J", 0.0, "rapl"), "its energy is 0 J in 3 s, less than any machine takes"),
        (
            Measurement("peak_memory", "B", 1e3, "vmhwm-reset"),
            "its peak memory is 1,000 B, less than any process takes",
        ),
    ],
)
def test_an_impossible_reading_of_a_meter_is_found(found, measurement, said):
    def whole(rows):
        return [measurement if getattr(each, "name", "") == measurement.name else each for each in rows]

    assert found(whole=whole) == [said]


@pytest.mark.parametrize(
    ("peak_b", "memory_b", "said"),
    [
        (1e15, 25e9, ["its peak memory is 1e+15 B, on a machine that has 2.5e+10 B"]),
        (9e10, 25e9, []),
        (1e15, None, []),
    ],
)
def test_more_resident_memory_than_its_machine_has_is_found(found, make_header, peak_b, memory_b, said):
    def whole(rows):
        peak = Measurement("peak_memory", "B", peak_b, "vmhwm-reset")
        return [peak if getattr(each, "name", "") == "peak_memory" else each for each in rows]

    head = make_header()
    facts = {**head.environment, "machine": {"id": "m", "memory_bytes": memory_b}}
    assert found(header=msgspec.structs.replace(head, environment=facts), whole=whole) == said


def test_more_operations_than_any_machine_performs_are_found(found):
    too_many = Measurement("operations/float32", "1", 1e20, "counted")
    assert found(whole=lambda rows: [*rows[:-1], too_many, rows[-1]])[0].endswith(
        "operations a second, more than any machine performs"
    )


def test_two_readings_of_one_meter_are_found(found):
    twice = Measurement("peak_memory", "B", 1.0e8, "vmhwm-reset")
    assert found(whole=lambda rows: [*rows[:-1], twice, rows[-1]]) == ["it has more than one reading of peak_memory"]


def test_a_quality_may_exceed_its_scale_by_rounding(found):
    assert not any("on a scale" in each for each in found(Evaluation, 2, quality={"validation": 1.0000001}))


@pytest.mark.parametrize(
    ("parts", "qualities", "why"),
    [
        ({"budget_s": 2.5}, (0.5, 0.6, 0.7), "budget of 2.5 s spent"),
        ({"budget_samples": 1900}, (0.5, 0.6, 0.7), "budget of 1900 samples spent"),
        ({"plateau": 2}, (0.7, 0.6, 0.65), "plateau: no better quality in 2 evaluations"),
    ],
)
def test_a_run_that_ended_by_its_budget_or_plateau_is_consistent(
    found, make_header, make_events, parts, qualities, why
):
    rows = make_events(qualities, stopped_by=why)
    assert found(events=rows, header=make_header(**parts)) == []
    assert found(events=rows, header=make_header()) == [
        f"it ended because of {why!r}, which its last evaluation does not show"
    ]


def test_a_plateau_of_a_loss_counts_lower_values_as_better(found, make_header, make_events):
    lower = msgspec.structs.replace(make_header().specification.target, direction="lower", high=None, threshold=0.01)
    head = make_header(plateau=2, target=lower)
    assert found(events=make_events((0.5, 0.4, 0.3, 0.2)), header=head) == []
    assert found(events=make_events((0.2, 0.3, 0.4, 0.5)), header=head) == [
        "at step 30 there had been no better quality in 2 evaluations, and training went on"
    ]


def test_batches_of_one_example_are_consistent_with_their_steps(found, make_events):
    rows = [
        msgspec.structs.replace(each, samples=each.step) if isinstance(each, Evaluation) else each
        for each in make_events()
    ]
    assert found(events=rows) == []


def test_stolen_time_of_the_processors_counts_once(found, make_header, make_events):
    environment = {"machine": MACHINE, "load": {"counters": {**counters(100.0, 1.0, 1.0), "steal_s": 2.0}}}
    head = msgspec.structs.replace(make_header(), environment=environment)
    after = {**counters(103.5, 5.0, 6.0), "idle_s": 201.0, "steal_s": 3.0}
    assert found(events=make_events(environment_after={"load": {"counters": after}}), header=head) == []
    much = {**after, "steal_s": 30.0}
    (said,) = found(events=make_events(environment_after={"load": {"counters": much}}), header=head)
    assert said.startswith("all processors spent 35 s of processor time in 3.5 s on 2 cores")


def test_a_refusal_counts_the_contradictions_that_it_does_not_show(tmp_path, make_header, make_events, make_run):
    rows = [
        msgspec.structs.replace(each, quality={"validation": 1.5}, loss=None) if isinstance(each, Evaluation) else each
        for each in scaled(0.3, Evaluation, End)(make_events(stopped_by="target reached"))
    ]
    run = summarise(read_record(make_run(tmp_path, make_header(budget_epochs=1.0, budget_s=0.1), rows)))
    assert len(run.contradictions) > 3
    shown = run.contradictions[:3]
    with pytest.raises(RecordError, match=rf"and {len(run.contradictions) - len(shown)} more"):
        require_consistent(run)


def test_step_times_of_ranks_that_are_scaled_are_found(found, make_header):
    less = [
        lambda each: msgspec.structs.replace(each, values=[value * 3 // 10 for value in each.values]),
        lambda each: each,
    ]
    (said,) = found(
        header=make_header(distribution=TEAM),
        whole=lambda rows: [less[not isinstance(each, Samples)](each) for each in rows],
    )
    assert said.startswith("its steps took 0.67")
    assert said.endswith("and computing alone 1.5 s")


def test_a_start_that_is_not_a_time_is_found(tmp_path, make_header, make_run):
    path = make_run(tmp_path, make_header(started="2026-03-01T12:00:00.000+00:00"))
    path.write_bytes(resealed(path.read_bytes().replace(b"2026-03-01T12:00:00.000+00:00", b"yesterday", 1)))
    assert "its start, 'yesterday', is not a time" in summarise(read_record(path)).contradictions


@pytest.mark.parametrize("name", ["machine", "load", "framework", "accelerators", "threads"])
@pytest.mark.parametrize("odd", ["x", 1.5, [1], None])
def test_a_part_of_an_environment_with_another_type_is_ignored(tmp_path, make_header, make_events, make_run, name, odd):
    environment = {"machine": MACHINE, "load": {"counters": counters(100.0, 1.0, 1.0)}, name: odd}
    head = msgspec.structs.replace(make_header(), environment=environment)
    after = {"load": {"counters": counters(103.5, 5.0, 6.0)}}
    assert summarise(read_record(make_run(tmp_path, head, make_events(environment_after=after)))).contradictions == []


def test_energy_is_limited_by_the_time_of_the_run(found, make_events):
    for joules, refused in ((2e5, False), (4e5, True)):
        rows = make_events(stopped_by="target reached")
        at = next(at for at, each in enumerate(rows) if isinstance(each, Measurement) and each.name == "energy")
        rows[at] = Measurement("energy", "J", joules, "RAPL")
        assert bool(found(events=rows)) == refused


def test_the_index_counts_contradictions_as_doubts(tmp_path, make_header, make_events, make_run):
    fine, broken = (tmp_path / name for name in ("fine", "broken"))
    doubts = make_events(suspect=["busy"], stopped_by="target reached")
    make_run(fine, make_header(), doubts)
    make_run(broken, make_header(), scaled(0.3, Evaluation, End)(doubts))
    # The second doubt is that no other clock watched it.
    assert [Store(each).rows()[0].suspect for each in (fine, broken)] == [2, 3]
