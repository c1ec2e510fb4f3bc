"""One problem on one framework: measured, wrong, skipped, refused or failed, and always reported."""

import numpy as np
import pytest

from levelbench.errors import MissingError
from levelbench.measure.caches import Flusher
from levelbench.operators.benchmark.measuring import TrialSettings, best_ceilings, measure_problem
from levelbench.operators.frameworks import load_framework, open_framework
from levelbench.operators.suites.single import parse_problem

QUICK = {"budget_s": 0.02, "memory_bytes": 2**34}


def measured(backend, problem, reference, **limits):
    return measure_problem(backend, problem, 0, 0, TrialSettings(**{**QUICK, **limits}), reference)


def test_a_correct_result_is_measured_with_its_cost_and_errors(fake, gemm, reference):
    backend = fake()
    case, times_s = measured(backend, gemm, reference, budget_s=0.3)
    assert (case.status, case.reason) == ("measured", "")
    assert case.flops == 2 * 16 * 24 * 8
    assert case.bytes == 4 * (16 * 24 + 24 * 8 + 16 * 8)
    assert 0 < case.errors["relative"] < 1e-6
    assert len(times_s) >= 6
    assert min(times_s) > 0


def test_the_measured_call_ends_when_its_outputs_are_computed(fake, gemm, reference):
    backend = fake()
    measured(backend, gemm, reference)
    assert backend.finished == backend.calls


def test_a_product_that_only_looks_fast_makes_no_ceiling(fake):
    held = []

    def first(array):
        held.append(array)
        return held[0]

    found = [
        best_ceilings(load_framework("numpy"), fake(change), "cpu", "float16", 1e5, 0.02).flop_s
        for change in (lambda array: array, first, lambda array: array[:0])
    ]
    assert [list(each) for each in found] == [["float16"], [], []]


def unwritten_border(array):
    changed = array.copy()
    changed[-1] = 0
    return changed


@pytest.mark.parametrize(
    "fault",
    [
        lambda array: -array,
        lambda array: array * np.float32(1.001),
        lambda array: array.astype(np.float16).astype(np.float32),
        lambda array: array[:, ::-1],
        lambda array: array[:-1],
        unwritten_border,
    ],
    ids=["sign", "scale", "half precision", "reversed", "a row short", "unwritten border"],
)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_wrong_result_is_reported_as_wrong(fake, gemm, reference, fault, direction):
    case, _ = measured(fake(change=fault), gemm, reference, direction=direction)
    assert case.status == "wrong"
    assert case.reason


def test_a_backward_is_measured_and_its_gradients_are_compared(fake, gemm, reference):
    case, times_s = measured(fake(), gemm, reference, direction="backward")
    assert case.status == "measured", case.reason
    assert case.flops == 4 * 16 * 24 * 8
    assert times_s
    assert case.errors["relative"] < 1e-6


def test_a_refusal_is_unsupported_with_its_reason(fake, gemm, reference):
    case, times_s = measured(fake(refuses=True), gemm, reference)
    assert (case.status, case.reason, times_s) == ("unsupported", "this test refuses it", [])


def test_an_exception_of_a_framework_fails_only_its_problem(fake, gemm, reference):
    case, _ = measured(fake(raises=RuntimeError("no kernel image")), gemm, reference)
    assert case.status == "failed"
    assert "no kernel image" in case.reason


def test_a_problem_too_large_for_memory_is_not_created(fake, gemm, reference):
    backend = fake()
    case, _ = measured(backend, gemm, reference, memory_bytes=1000)
    assert case.status == "skipped"
    assert "GiB are left" in case.reason
    assert backend.calls == 0


def test_running_out_of_memory_is_a_skip(fake, gemm, reference):
    case, _ = measured(fake(raises=MemoryError()), gemm, reference)
    assert (case.status, case.reason) == ("skipped", "it ran out of memory")


def test_a_problem_far_too_slow_at_the_frameworks_pace_is_not_tried(fake, gemm, reference):
    backend = fake()
    case, _ = measured(backend, gemm, reference, pace_flop_s=1e3)
    assert case.status == "skipped"
    assert "matrix product" in case.reason
    assert backend.calls == 0


def test_a_call_longer_than_the_budget_is_skipped_after_the_second(fake, gemm, reference):
    backend = fake(takes_s=3.0)
    case, _ = measured(backend, gemm, reference, budget_s=1.0)
    assert case.status == "skipped"
    assert "takes 3 s, more than the budget of 1 s" in case.reason
    assert backend.calls == 2


def test_only_a_slow_first_call_skips_nothing(fake, gemm, reference):
    backend = fake(takes_s=0.1)
    backend.step = lambda: backend.fake.advance(3_000_000_000 if backend.calls == 1 else 100_000_000)
    case, _ = measured(backend, gemm, reference, budget_s=1.0)
    assert (case.status, case.first_s) == ("measured", 3.0)


def test_a_random_operator_is_measured_but_not_compared(fake, reference):
    case, times_s = measured(fake(), parse_problem("RandomNormalLike", ["input=64"]), reference)
    assert case.status == "unchecked", case.reason
    assert "random" in case.reason
    assert times_s


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        ("ReduceSum", (["data=8x16"], ["axes=1"])),
        ("Reshape", (["data=8x16"], ["shape=16,8"])),
        ("ArgMax", (["data=8x16"],)),
        ("Where", (["condition=8", "X=8", "Y=8"],)),
        ("Gather", (["data=9x4", "indices=5"],)),
        ("Clip", (["input=8"], ["max=0.5"])),
        ("LSTM", (["X=3x2x4", "W=1x16x4", "R=1x16x4"], [], ["hidden_size=4"])),
        ("Relu", (["X=0"],)),
    ],
)
def test_any_operator_is_measured_by_name(fake, reference, operator, words):
    case, _ = measured(fake(), parse_problem(operator, *words), reference)
    assert case.status == "measured", case.reason


class NoFlusher(Flusher):
    def flush(self):
        """Flushes nothing, which the verification detects."""


def test_cold_caches_that_cannot_be_verified_end_the_benchmark(fake, gemm, reference):
    with pytest.raises(MissingError, match="cold"):
        measured(fake(), gemm, reference, cache="cold", flusher=NoFlusher())


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_each_call_gets_inputs_and_gradients_in_the_layout_that_is_asked_for(reference, direction, monkeypatch):
    torch = pytest.importorskip("torch")
    backend = open_framework("torch")
    problem = parse_problem("Conv", ["X=2x3x5x6", "W=4x3x3x3"])
    seen = []
    operator = backend.operator

    def watched(node):
        made = operator(node)
        forward, vjp = made.forward, made.vjp

        def pulled(*inputs):
            outputs, pull = vjp(*inputs)
            return outputs, lambda *given: (seen.extend(given), pull(*given))[1]

        made.forward = lambda *given: (seen.extend(given), forward(*given))[1]
        made.vjp = pulled
        return made

    monkeypatch.setattr(backend, "operator", watched)
    case, times_s = measured(backend, problem, reference, direction=direction, channels_last=True)
    assert (case.status, case.reason) == ("measured", "")
    assert times_s
    assert all(each.is_contiguous(memory_format=torch.channels_last) for each in seen)
    # The contents change in place, also of tensors in this layout.
    assert len({each.data_ptr() for each in seen[2 if direction == "forward" else 3 :]}) < len(seen) / 2


def test_a_framework_without_channels_last_refuses_it(fake, gemm, reference):
    case, _ = measured(fake(), gemm, reference, channels_last=True)
    assert (case.status, case.reason) == ("unsupported", "it computes in ONNX's layout")


def test_what_a_framework_does_not_tell_is_recorded_with_the_reason(fake, gemm, reference):
    case, _ = measured(fake(), gemm, reference)
    assert (case.algorithm, case.algorithm_reason) == (None, "this framework does not tell")


def test_a_framework_that_fails_when_asked_for_its_algorithm_is_still_measured(fake, gemm, reference, monkeypatch):
    def fails(backend, operator, call):
        raise OSError("no file")

    monkeypatch.setattr(fake, "algorithm", fails)
    case, times_s = measured(fake(), gemm, reference)
    assert (case.status, case.algorithm) == ("measured", None)
    assert times_s
    assert case.algorithm_reason == "asking failed: OSError: no file"
