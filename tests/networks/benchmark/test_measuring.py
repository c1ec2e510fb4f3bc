"""One case on one arm: each phase once, the result checked before it is timed, and every end an outcome."""

import pytest
from msgspec.structs import replace

from levelbench.errors import MissingError
from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.networks.benchmark import measuring, reference
from levelbench.networks.benchmark.measuring import STAGES, repeats_for
from levelbench.records import Measurement, Samples
from levelbench.records.networks import PHASES, NetworkCase, NetworkFacts, OperatorSamples, ProfileShares

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


def test_the_facts_are_those_of_the_network_and_the_batch(make_specification, measured):
    (one,) = only(measured(make_specification(batch=1))[1], NetworkFacts)
    (eight,) = only(measured(make_specification(batch=8))[1], NetworkFacts)
    assert (one.mode, one.dtype, one.framework["name"]) == ("eager", "float32", "numpy")
    assert one.parameters == eight.parameters == 4 * 10 + 8 * 37 + 8 * 33 + 3 * 9
    assert eight.flops == pytest.approx(8 * one.flops)


def test_a_right_result_says_against_what_it_was_checked(make_specification, measured):
    outcome, _ = measured(make_specification())
    assert outcome.errors["output"] <= 1e-4
    assert outcome.checked == "against numpy on 2 rows, within 0.0001 of each tensor's size"


def test_a_wrong_output_is_measured_and_called_wrong(make_specification, measured):
    outcome, events = measured(make_specification(), alter=lambda array: array + TRANSLATION)
    assert outcome.status == "wrong"
    assert outcome.reason.startswith("output 0 is off by")
    assert "latency" in named(events, Samples)


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


def test_a_foreign_model_whose_rows_change_each_other_is_run_with_those_alone(
    make_specification, measured, monkeypatch
):
    monkeypatch.setattr(reference, "LIMIT_FLOPS", 100_000)
    outcome, _ = measured(make_specification(batch=16), alter=lambda array: array * (2 if len(array) == 16 else 1))
    assert outcome.status == "measured"
    assert "within a batch of 16 the rows change each other" in outcome.checked


def test_without_a_reference_nothing_is_claimed(make_specification, measured):
    none = reference.Reference(
        reference.ReferenceFacts(reason="the process of the reference was killed by signal 11"), {}
    )
    outcome, _ = measured(make_specification(), wanted=none)
    assert outcome.status == "measured"
    assert outcome.checked == "not checked: the process of the reference was killed by signal 11"


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
def test_whatever_a_framework_raises_is_an_outcome(make_specification, measured, error, status, reason):
    outcome, events = measured(make_specification(), open_backend=lambda name, device: Refusing(error))
    assert (outcome.status, outcome.reason) == (status, reason)
    assert "latency" not in named(events, Samples)


def test_an_unknown_mode_is_told(make_specification, measured):
    outcome, _ = measured(make_specification(mode="eagre"))
    assert outcome.status == "failed"
    assert "eager" in outcome.reason


def test_a_framework_that_is_missing_ends_everything(make_specification, measured):
    def missing(name, device):
        raise MissingError("framework", "it is not here", "install it")

    with pytest.raises(MissingError):
        measured(make_specification(), open_backend=missing)


def test_parameters_that_cannot_fit_are_not_even_drawn(make_specification, measured, monkeypatch):
    monkeypatch.setattr(measuring, "memory_left_bytes", lambda: 1000)
    outcome, events = measured(make_specification())
    assert outcome.status == "skipped"
    assert "for parameters where 0.0 GiB are left" in outcome.reason
    assert "phase/prepare" not in named(events, Measurement)


def test_a_file_that_changed_since_it_was_planned_is_not_measured(make_specification, measured):
    spec = make_specification()
    spec = replace(spec, case=replace(spec.case, digest="00"))
    outcome, _ = measured(spec, wanted=reference.Reference(reference.ReferenceFacts(reason="none"), {}))
    assert outcome.status == "failed"
    assert "changed since the benchmark was planned" in outcome.reason


def test_a_transformed_network_is_checked_against_the_one_before(make_specification, measured):
    outcome, events = measured(make_specification(transforms=("dead-nodes",)))
    (facts,) = only(events, NetworkFacts)
    assert outcome.status == "measured"
    assert facts.transforms == ("dead-nodes: it changed nothing",)


def test_an_adapter_without_a_profiler_says_so(make_specification, measured):
    (shares,) = only(measured(make_specification())[1], ProfileShares)
    assert (shares.shares, shares.reason) == ({}, "this adapter asks none")


def test_a_profilers_seconds_become_shares(make_specification, measured):
    class Profiled(NumpyBackend):
        def profile(self, executor, inputs, repeats):
            return "a profiler", {"Conv": 3.0, "Relu": 1.0}

    (shares,) = only(measured(make_specification(), open_backend=lambda *_: Profiled())[1], ProfileShares)
    assert shares == ProfileShares("a profiler", {"Conv": 0.75, "Relu": 0.25})


@pytest.mark.parametrize(("call_s", "repeats"), [(1e-6, 50), (0.1, 25), (10.0, 5)])
def test_half_the_budget_pays_for_the_calls_that_are_timed_by_operator(call_s, repeats):
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


def test_an_input_that_no_output_needs_is_not_given(tmp_path, make_specification, measured):
    from levelbench.networks import GraphBuilder
    from levelbench.networks.files import save

    graph = GraphBuilder("spare")
    graph.input("spare", ("batch", 2))
    graph.output(graph.node("Relu", graph.input("x", ("batch", 4))))
    save(graph.build(), tmp_path / "spare.onnx")
    case = NetworkCase("spare", "file", 3, path=str(tmp_path / "spare.onnx"))
    assert measured(make_specification(case=case))[0].status == "measured"


def test_torch_agrees_and_its_profiler_is_asked_where_its_adapter_offers_it(make_specification, measured):
    pytest.importorskip("torch")
    outcome, events = measured(make_specification("torch"))
    assert outcome.status == "measured"
    assert len(only(events, OperatorSamples)) == 10
    assert len(only(events, ProfileShares)) == 1
