"""One case on one arm: each phase once, the result checked before it is timed, and every ending an outcome."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from levelbench.errors import MissingError, UnsupportedError
from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.measure.clocks import FakeClock
from levelbench.measure.meters.base import NullMeter, Reading
from levelbench.measure.meters.resources import PeakMemoryMeter, memory_meter
from levelbench.networks import OperatorTime
from levelbench.networks.benchmark import measuring, reference
from levelbench.networks.benchmark.cases import Known
from levelbench.networks.benchmark.measuring import (
    STAGES,
    Footprint,
    costs_of,
    enough,
    meter_of,
    repeats_for,
    sample_latency,
)
from levelbench.networks.zoo import cnn
from levelbench.operators.cost import Cost
from levelbench.operators.frameworks import open_framework
from levelbench.records import Measurement, Samples
from levelbench.records.networks import PHASES, NetworkCase, NetworkFacts, OperatorSamples, ProfileShares

pytestmark = pytest.mark.sampled(3)

TRANSLATION = 0.01


def named(events, kind):
    return {event.name: event for event in events if isinstance(event, kind)}


def only(events, kind):
    return [event for event in events if isinstance(event, kind)]


def test_an_inference_has_phases_memory_latencies_and_operators(make_specification, measured):
    outcome, events = measured(make_specification())
    assert (outcome.status, outcome.reason) == ("measured", "")
    measurements = named(events, Measurement)
    assert list(measurements) == [*(f"phase/{name}" for name in PHASES), "peak_memory"]
    assert all(measurements[f"phase/{name}"].value > 0 for name in PHASES)
    assert len(named(events, Samples)["latency"].values) >= 6
    operators = only(events, OperatorSamples)
    assert [each.title for each in operators[:3]] == ["Conv", "Relu", "MaxPool"]
    assert [each.index for each in operators] == list(range(len(operators)))
    # 2 images of 8 x 8, 4 channels, 3 x 3 windows of one channel, multiply and add.
    assert operators[0].flops == 2 * 64 * 4 * 9 * 2


def test_the_stages_begin_in_order(make_specification, measured):
    seen = []
    measured(make_specification(), on_stage=seen.append)
    assert tuple(seen) == STAGES


@pytest.mark.slow
def test_the_facts_are_those_of_the_network_and_the_batch(make_specification, measured):
    (one,) = only(measured(make_specification(batch=1))[1], NetworkFacts)
    (eight,) = only(measured(make_specification(batch=8))[1], NetworkFacts)
    assert (one.mode, one.dtype, one.framework["name"]) == ("eager", "float32", "numpy")
    assert one.parameters == eight.parameters == 4 * 10 + 8 * 37 + 8 * 33 + 3 * 9
    assert eight.flops == pytest.approx(8 * one.flops)


def test_a_correct_result_states_its_reference(make_specification, measured):
    outcome, _ = measured(make_specification())
    assert outcome.errors["output"] <= 1e-4
    assert outcome.checked == "against numpy on 2 rows, within 0.0001 of each tensor's size"


def test_a_wrong_output_is_measured_and_reported_as_wrong(make_specification, measured):
    outcome, events = measured(make_specification(), alter=lambda array: array + TRANSLATION)
    assert outcome.status == "wrong"
    assert outcome.reason.startswith("output 0 is off by")
    assert "latency" in named(events, Samples)


class Remembering(NumpyBackend):
    """Answers every call with the outputs of its first."""

    def executor(self, *given, **named):
        made, held = super().executor(*given, **named), []
        infer = made.infer

        def remembered(*inputs):
            if not held:
                held.append(infer(*inputs))
            return held[0]

        made.infer = remembered
        return made


def test_a_network_that_answers_with_what_it_remembers_is_wrong(make_specification, measured):
    outcome, _ = measured(make_specification(), open_backend=lambda name, device: Remembering())
    assert (outcome.status, outcome.reason) == (
        "wrong",
        "it gives the same outputs for other inputs: it remembers results",
    )


class Writing(NumpyBackend):
    """Writes to its inputs when it has computed."""

    def executor(self, *given, **named):
        made = super().executor(*given, **named)
        infer = made.infer

        def writing(*inputs):
            found = tuple(np.array(each) for each in infer(*inputs))
            inputs[0].flat[0] += 1
            return found

        made.infer = writing
        return made


def test_a_network_that_writes_to_its_inputs_is_wrong(make_specification, measured):
    outcome, _ = measured(make_specification(), open_backend=lambda name, device: Writing())
    assert outcome.status == "wrong"
    assert "it changes its input" in outcome.reason


def test_an_output_of_another_floating_point_type_is_wrong(make_specification, measured):
    outcome, _ = measured(make_specification(), alter=lambda array: array.astype(np.float64))
    assert (outcome.status, outcome.reason) == ("wrong", "output 0 is float64, expected float32")


def test_an_output_with_its_rows_in_another_order_is_wrong(make_specification, measured):
    assert measured(make_specification(), alter=lambda array: array[::-1])[0].status == "wrong"


def test_a_training_step_is_checked_by_its_loss_and_gradients(make_specification, measured):
    outcome, events = measured(make_specification(direction="backward"))
    assert outcome.status == "measured"
    assert set(outcome.errors) == {"loss", "gradient"}
    assert outcome.operators_reason == "the operators of a training step are not timed one by one"
    assert only(events, OperatorSamples) == []
    assert named(events, Measurement)["peak_memory"].name == "peak_memory"


def test_a_training_step_with_a_wrong_gradient_is_caught(make_specification, measured):
    outcome, _ = measured(make_specification(direction="backward"), alter=lambda array: -array)
    assert outcome.status == "wrong"
    assert "gradient of" in outcome.reason


def test_a_large_batch_is_checked_by_its_first_rows(make_specification, measured, monkeypatch):
    monkeypatch.setattr(reference, "LIMIT_FLOPS", 100_000)
    right, _ = measured(make_specification(batch=16))
    wrong, _ = measured(make_specification(batch=16), alter=lambda array: array + TRANSLATION)
    assert 1 <= int(right.checked.split(" on ")[1].split()[0]) < 16
    assert (right.status, wrong.status) == ("measured", "wrong")


def test_a_foreign_model_whose_rows_affect_each_other_is_run_with_only_these(make_specification, measured, monkeypatch):
    monkeypatch.setattr(reference, "LIMIT_FLOPS", 100_000)
    outcome, _ = measured(make_specification(batch=16), alter=lambda array: array * (2 if len(array) == 16 else 1))
    assert outcome.status == "measured"
    assert "within a batch of 16 the rows affect each other" in outcome.checked


def test_without_a_reference_nothing_is_claimed(make_specification, measured):
    none = reference.Reference(
        reference.ReferenceFacts(reason="the process that computes the reference was killed by signal 11"), {}
    )
    outcome, _ = measured(make_specification(), wanted=none)
    assert outcome.status == "measured"
    assert outcome.checked == "not checked: the process that computes the reference was killed by signal 11"


class Refusing(NumpyBackend):
    def __init__(self, error):
        super().__init__()
        self._error = error

    def executor(self, *given, **more):
        raise self._error


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (MemoryError(), "skipped", "it ran out of memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: out"), "skipped", "it ran out of the device's memory"),
        (ValueError("no such thing\nsecond line"), "failed", "ValueError: no such thing"),
    ],
)
def test_any_exception_of_a_framework_is_an_outcome(make_specification, measured, error, status, reason):
    outcome, events = measured(make_specification(), open_backend=lambda name, device: Refusing(error))
    assert (outcome.status, outcome.reason) == (status, reason)
    assert "latency" not in named(events, Samples)


def test_an_unknown_mode_is_reported(make_specification, measured):
    outcome, _ = measured(make_specification(mode="eagre"))
    assert outcome.status == "failed"
    assert "eager" in outcome.reason


def test_a_framework_that_is_missing_ends_everything(make_specification, measured):
    def missing(name, device):
        raise MissingError("framework", "it is not here", "install it")

    with pytest.raises(MissingError):
        measured(make_specification(), open_backend=missing)


def test_parameters_that_cannot_fit_are_not_drawn(make_specification, measured, monkeypatch):
    monkeypatch.setattr(measuring, "memory_left_bytes", lambda: 1000)
    outcome, events = measured(make_specification())
    assert outcome.status == "skipped"
    assert "for parameters, but 0.0 GiB are left" in outcome.reason
    assert "phase/prepare" not in named(events, Measurement)


def test_a_file_that_changed_since_it_was_planned_is_not_measured(make_specification, measured):
    spec = make_specification()
    spec = structs.replace(spec, case=structs.replace(spec.case, digest="00"))
    outcome, _ = measured(spec, wanted=reference.Reference(reference.ReferenceFacts(reason="none"), {}))
    assert outcome.status == "failed"
    assert "changed since the benchmark was planned" in outcome.reason


def test_a_transformed_network_is_compared_with_the_original(make_specification, measured):
    outcome, events = measured(make_specification(transforms=("dead-nodes",)))
    (facts,) = only(events, NetworkFacts)
    assert outcome.status == "measured"
    assert facts.transforms == ("dead-nodes: it changed nothing",)


def test_an_adapter_without_a_profiler_gives_the_reason(make_specification, measured):
    (shares,) = only(measured(make_specification())[1], ProfileShares)
    assert (shares.shares, shares.reason) == ({}, "this adapter uses none")


def test_a_profilers_seconds_become_shares(make_specification, measured):
    class Profiled(NumpyBackend):
        def profile(self, executor, inputs, repeats):
            return "a profiler", {"Conv": 3.0, "Relu": 1.0}

    (shares,) = only(measured(make_specification(), open_backend=lambda *_: Profiled())[1], ProfileShares)
    assert shares == ProfileShares("a profiler", {"Conv": 0.75, "Relu": 0.25})


@pytest.mark.parametrize(("call_s", "repeats"), [(1e-6, 50), (0.1, 25), (10.0, 5)])
def test_half_the_budget_is_for_calls_timed_by_operator(call_s, repeats):
    assert repeats_for(call_s, 5.0) == repeats


def test_a_batch_that_a_model_cannot_have_is_refused(tmp_path, make_specification, measured):
    from levelbench.networks import GraphBuilder
    from levelbench.networks.files import save

    graph = GraphBuilder("fixed")
    graph.output(graph.node("Relu", graph.input("x", (1, 4))))
    save(graph.build(), tmp_path / "fixed.onnx")
    case = NetworkCase("fixed", "file", 8, path=str(tmp_path / "fixed.onnx"))
    outcome, _ = measured(
        make_specification(case=case), wanted=reference.Reference(reference.ReferenceFacts(reason="none"), {})
    )
    assert outcome.status == "failed"
    assert "fixed shapes" in outcome.reason


def test_an_unneeded_input_is_not_passed(tmp_path, make_specification, measured):
    from levelbench.networks import GraphBuilder
    from levelbench.networks.files import save

    graph = GraphBuilder("spare")
    graph.input("spare", ("batch", 2))
    graph.output(graph.node("Relu", graph.input("x", ("batch", 4))))
    save(graph.build(), tmp_path / "spare.onnx")
    case = NetworkCase("spare", "file", 3, path=str(tmp_path / "spare.onnx"))
    assert measured(make_specification(case=case))[0].status == "measured"


@pytest.mark.slow
def test_torch_agrees_and_its_profiler_is_used_if_available(make_specification, measured):
    pytest.importorskip("torch")
    outcome, events = measured(make_specification("torch"))
    assert outcome.status == "measured"
    assert len(only(events, OperatorSamples)) == 10
    assert len(only(events, ProfileShares)) == 1


class Work:
    """Takes scripted nanoseconds on a fake clock, repeating the last."""

    def __init__(self, *durations_ns):
        self.clock, self.calls = FakeClock(), 0
        self._durations_ns = durations_ns

    def __call__(self):
        self.clock.advance(self._durations_ns[min(self.calls, len(self._durations_ns) - 1)])
        self.calls += 1


def sampled(work, samples=500, precision=0.05, budget_s=10.0):
    return sample_latency(work, enough(samples, precision, budget_s), work.clock)


@pytest.mark.parametrize("duration_ns", [100, 1_000_000])
def test_each_value_is_one_call_however_short(duration_ns):
    work = Work(duration_ns)
    found = sampled(work, samples=50)
    assert len(found.values) + len(found.warmup) == work.calls
    assert found.values == pytest.approx(np.full(len(found.values), duration_ns * 1e-9))


def test_a_steady_call_is_sampled_for_the_requested_number_of_values():
    found = sampled(Work(1_000_000))
    assert 500 <= len(found.values) < 700
    assert "500" in found.stopped_by


def test_a_slow_call_ends_with_its_budget():
    work = Work(100_000_000)
    found = sampled(work, budget_s=2.0)
    assert len(found.values) == 20
    assert found.stopped_by.startswith("budget of 2 s spent")


def test_a_call_longer_than_the_budget_still_gives_an_interval_if_affordable():
    assert len(sampled(Work(1_000_000_000), budget_s=3.0).values) == 6


def test_a_very_slow_call_is_sampled_for_three_budgets():
    assert len(sampled(Work(10_000_000_000), budget_s=1.0).values) == 1


def test_slow_first_calls_are_warm_up_and_kept_separately():
    found = sampled(Work(*[50_000_000] * 5, 1_000_000), samples=100)
    assert found.warmup[:5] == pytest.approx([0.05] * 5)
    assert np.median(found.values) == pytest.approx(1e-3)


def test_endless_noise_stops_at_the_largest_number_of_values():
    random = np.random.default_rng(0)
    work = Work(*random.exponential(1000, 60_000).astype(int).tolist())
    assert len(sampled(work, precision=1e-6).values) <= 50_000


MIB = 2**20


class Meter:
    """Returns scripted bytes, one at each stop."""

    def __init__(self, *values):
        self._values = iter(values)

    def start(self):
        pass

    def stop(self):
        return Reading("peak_memory", "B", next(self._values), "scripted")


def test_the_peak_is_above_what_was_held_before():
    found = Footprint(Meter(100.0, 350.0)).of(lambda: None)
    assert (found.name, found.value, found.unit) == ("peak_memory", 250.0, "B")
    assert found.method == "scripted, above the start"


def test_a_peak_below_the_start_is_zero():
    assert Footprint(Meter(100.0, 90.0)).of(lambda: None).value == 0.0


def test_a_peak_is_at_least_that_of_what_came_before_if_this_counts():
    footprint = Footprint(Meter(100.0, 400.0, 350.0))
    footprint.count_until_now()
    assert footprint.of(lambda: None).value == 300.0


def test_without_a_meter_the_reason_is_recorded():
    found = Footprint(NullMeter("peak_memory", "B", "no way")).of(lambda: None)
    assert (found.value, found.method, found.reason) == (None, None, "no way")


def test_an_accelerator_without_a_meter_gives_the_reason():
    assert "NumpyBackend does not read the memory" in meter_of(NumpyBackend(), "cuda").stop().reason


def test_an_accelerators_meter_is_the_frameworks_own():
    meter = Meter(1.0)
    backend = type("Backend", (), {"memory_meter": lambda self: meter})()
    assert meter_of(backend, "cuda:0") is meter


@pytest.mark.skipif(not isinstance(memory_meter(), PeakMemoryMeter), reason="this kernel cannot reset the peak")
def test_a_temporary_array_of_the_call_is_in_the_peak():
    found = Footprint(memory_meter()).of(lambda: np.ones(64 * MIB // 8))
    assert 60 * MIB < found.value < 100 * MIB


@pytest.mark.skipif(not isinstance(memory_meter(), PeakMemoryMeter), reason="this kernel cannot reset the peak")
def test_what_was_held_before_is_not_in_the_peak():
    held = np.ones(64 * MIB // 8)
    assert Footprint(memory_meter()).of(held.sum).value < 20 * MIB


def test_the_peak_is_that_of_up_to_eight_calls_within_a_second():
    calls = []
    measuring._few(lambda: calls.append(1))
    assert len(calls) == 8


NETWORK = cnn((1, 8, 8), 2, 4, 2)
# Conv, Relu, MaxPool, Conv, Relu, MaxPool, Flatten, Gemm, Relu, Gemm
COSTS = {at: Cost(10.0**at, 100.0) for at in range(10)}
VALUES = dict.fromkeys((name for node in NETWORK.nodes for name in node.outputs), 30)
KNOWN = Known(NetworkFacts(), COSTS, VALUES)
UNKNOWN = Cost(None, None)


def timed(index, output=""):
    return OperatorTime(index, "title", output, (1.0,))


def output_of(at):
    return NETWORK.nodes[at].outputs[0]


def test_a_node_has_its_own_cost():
    assert costs_of([timed(3)], NETWORK, KNOWN) == [COSTS[3]]


def test_a_fused_operator_has_its_nodes_operations_but_not_the_bytes_between_them():
    found = costs_of([timed(-1, output_of(1)), timed(2), timed(-1, output_of(4))], NETWORK, KNOWN)
    # What Conv writes and Relu reads, 30 bytes each, never moves.
    assert found == [Cost(11.0, 140.0), COSTS[2], Cost(11_000.0, 140.0)]


def test_a_fused_operator_with_a_part_of_unknown_cost_has_none():
    known = replace(KNOWN, nodes={**COSTS, 1: UNKNOWN})
    assert costs_of([timed(-1, output_of(1))], NETWORK, known) == [UNKNOWN]


def test_bytes_are_unknown_if_a_size_between_fused_nodes_is():
    known = replace(KNOWN, value_bytes={})
    assert costs_of([timed(-1, output_of(1))], NETWORK, known) == [Cost(11.0, None)]


def test_something_that_is_not_a_value_of_the_network_has_no_cost():
    assert costs_of([timed(-1, "a copy")], NETWORK, KNOWN) == [UNKNOWN]
    assert costs_of([timed(-1, "layer")], None, Known(NetworkFacts(), {}, {})) == [UNKNOWN]


REPEATS = 5
KINDS = {"Conv", "Relu", "MaxPool", "Flatten", "Gemm"}


def shares(seconds):
    whole = sum(seconds.values())
    return {name: value / whole for name, value in seconds.items()}


def told(backend, profile, mode):
    """The shares by our clock and by the profiler; ``benchmarks/shares.py`` measures how close they are."""
    network = cnn((3, 32, 32), 32, 64, 10)
    executor = backend.executor(network, mode=mode, trains=False)
    inputs = [backend.array(each) for each in network.make_inputs(16).values()]
    ours: Counter = Counter()
    for each in executor.operator_times(*inputs, repeats=REPEATS):
        ours[each.title] += float(np.median(each.times_s))
    _, seconds = profile(executor, inputs, REPEATS)
    return shares(ours), shares(seconds)


@pytest.mark.slow
def test_pytorchs_profiler_accounts_for_the_same_operators_as_our_clock():
    pytest.importorskip("torch")
    from levelbench.frameworks.torch.profiling import profile

    ours, theirs = told(open_framework("torch"), profile, "eager")
    assert set(ours) == set(theirs) == KINDS
    assert min(theirs.values()) >= 0


def test_onnx_runtimes_profiler_accounts_for_the_same_operators_as_our_clock_around_single_ones():
    pytest.importorskip("onnxruntime")
    from levelbench.frameworks.onnxruntime.backend import profile

    backend = open_framework("onnxruntime")
    ours, theirs = told(backend, lambda *given: profile(backend, *given), "unoptimised")
    assert set(theirs) == KINDS
    # Its profiler counts whole microseconds, but a Flatten takes less.
    assert KINDS - {"Flatten"} <= set(ours)


def test_a_compiled_network_has_no_operators_to_profile():
    pytest.importorskip("torch")
    from levelbench.frameworks.torch.profiling import profile

    executor = open_framework("torch").executor(cnn((1, 8, 8), 2, 4, 2), mode="compiled", trains=False)
    with pytest.raises(UnsupportedError, match="not those of the network"):
        profile(executor, [], 1)


def test_an_optimised_session_has_other_operators_than_the_network():
    pytest.importorskip("onnxruntime")
    from levelbench.frameworks.onnxruntime.backend import profile

    backend = open_framework("onnxruntime")
    executor = backend.executor(cnn((1, 8, 8), 2, 4, 2), mode="optimised", trains=False)
    with pytest.raises(UnsupportedError, match="not those of the network"):
        profile(backend, executor, [], 1)
