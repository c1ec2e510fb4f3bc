"""A rule on all arrays of a network at once gives the same results as the plain loop."""

import math

import numpy as np
import pytest
from tests.frameworks.optimizing import SHAPES, arrays, assert_close, on_host, opened, plain, train

from levelbench.errors import DataError, DefinitionError
from levelbench.training.optimizers import (
    SGD,
    Adadelta,
    AdaGrad,
    Adam,
    AdamW,
    Lion,
    Momentum,
    NAdam,
    RMSProp,
    ScheduleFreeAdamW,
    ScheduleFreeSGD,
    UpdateRule,
)

ELEMENTWISE = [
    SGD(0.1, weight_decay=0.1),
    Momentum(0.1, nesterov=True),
    AdaGrad(0.1),
    RMSProp(0.1, momentum=0.5, centered=True),
    Adadelta(1.0),
    Adam(0.1, amsgrad=True),
    AdamW(0.1),
    NAdam(0.1),
    Lion(0.1, weight_decay=0.1),
    ScheduleFreeSGD(0.1),
    ScheduleFreeAdamW(0.1),
]


@pytest.fixture(params=["torch", "jax", "tensorflow"])
def backend(request):
    return opened(request.param)


def named(rule):
    return type(rule).__name__


class TestFastSteppers:
    @pytest.mark.parametrize("rule", ELEMENTWISE, ids=named)
    def test_all_tensors_at_once_go_the_way_of_one_after_another(self, rule):
        backend = opened("torch")
        fast, slow = arrays(backend), arrays(backend)
        steppers = backend.stepper(rule, fast), plain(rule, backend, slow)
        for each in steppers:
            train(backend, each, 4)
        assert_close(on_host(backend, fast), on_host(backend, slow))
        assert_close(steppers[0].state(), steppers[1].state())
        if (averaged := steppers[1].averaged()) is not None:
            assert_close(on_host(backend, steppers[0].averaged()), on_host(backend, averaged))

    @pytest.mark.parametrize("rule", [Momentum(0.1), AdamW(0.1), ScheduleFreeSGD(0.1)], ids=named)
    def test_one_program_gives_the_same_results_as_one_array_after_another(self, rule):
        backend, numpy = opened("jax"), opened("numpy")
        fast, slow = arrays(backend), arrays(numpy)
        steppers = backend.stepper(rule, fast), plain(rule, numpy, slow)
        train(backend, steppers[0], 4)
        train(numpy, steppers[1], 4)
        assert_close(on_host(backend, fast), slow)
        assert_close(steppers[0].state(), steppers[1].state())

    def test_a_run_continues_bitwise_from_its_state(self, backend):
        rule = NAdam(0.1)
        through, parts = arrays(backend), arrays(backend)
        whole = backend.stepper(rule, through)
        train(backend, whole, 4)
        before = backend.stepper(rule, parts)
        train(backend, before, 2)
        after = backend.stepper(rule, parts)
        after.restore(before.state())
        train(backend, after, 2, first=3)
        for name in SHAPES:
            np.testing.assert_array_equal(backend.host(through[name]), backend.host(parts[name]))

    def test_the_state_of_the_loop_fits_the_faster_way(self, backend):
        rule = NAdam(0.1)
        fast, slow = arrays(backend), arrays(backend)
        loop = plain(rule, backend, slow)
        train(backend, loop, 2)
        copied = {name: backend.array(backend.host(each)) for name, each in slow.items()}
        stepper = backend.stepper(rule, copied)
        stepper.restore(loop.state())
        train(backend, stepper, 1, first=3)
        train(backend, loop, 1, first=3)
        assert_close(on_host(backend, copied), on_host(backend, slow))
        assert fast.keys() == copied.keys()

    def test_parameters_without_a_gradient_stay(self, backend):
        rule = NAdam(0.1)
        fast, slow = arrays(backend), arrays(backend)
        steppers = backend.stepper(rule, fast), plain(rule, backend, slow)
        kept = backend.host(fast["vector"]).copy()
        for each in steppers:
            train(backend, each, 1, shapes={"matrix": (5, 3)})
        np.testing.assert_array_equal(backend.host(fast["vector"]), kept)
        for each in steppers:
            train(backend, each, 2, first=2)
            train(backend, each, 1, first=4, shapes={"scalar": ()})
        assert_close(on_host(backend, fast), on_host(backend, slow))

    def test_float32_stays_float32(self, backend):
        parameters = arrays(backend, dtype=np.float32)
        stepper = backend.stepper(NAdam(0.1), parameters)
        train(backend, stepper, 2, dtype=np.float32)
        assert {each.dtype for each in on_host(backend, parameters).values()} == {np.dtype(np.float32)}

    def test_an_executors_own_parameters_are_updated_in_their_place(self, backend):
        from levelbench.networks import zoo

        network = zoo.mlp(6, 5, 3).with_loss().training()
        executor = backend.executor(network, network.initialise(0))
        inputs = [backend.array(each) for each in network.make_inputs(8).values()]
        stepper = backend.stepper(Adam(0.05), executor.parameters)
        losses = []
        for step in range(1, 6):
            loss, gradients = executor.infer_and_backprop(*inputs)
            losses.append(float(backend.host(loss)))
            stepper.step(gradients, step, 1.0)
        assert losses[-1] < 0.8 * losses[0]

    def test_a_state_of_other_parameters_is_refused(self, backend):
        stepper = backend.stepper(Momentum(0.1), arrays(backend))
        with pytest.raises(DataError, match="lacks 'matrix'"):
            stepper.restore({"other": np.zeros(3)})


class Stepped(UpdateRule):
    """Uses the value of the step number, as a rule in plain Python may."""

    def init(self, parameter):
        return None

    def update(self, parameter, gradient, state, step, lr):
        return parameter - lr * gradient / math.sqrt(step), state


def test_a_rule_that_cannot_be_compiled_runs_all_the_same():
    backend, numpy = opened("jax"), opened("numpy")
    fast, slow = arrays(backend), arrays(numpy)
    train(backend, backend.stepper(Stepped(0.1), fast), 2)
    train(numpy, plain(Stepped(0.1), numpy, slow), 2)
    assert_close(on_host(backend, fast), slow)


def test_a_state_that_changes_its_kind_is_refused_on_many_tensors():
    class Changes(SGD):
        def init(self, parameter):
            return 0.0

        def update(self, parameter, gradient, state, step, lr):
            return parameter, gradient

    backend = opened("torch")
    with pytest.raises(DefinitionError, match="a different structure"):
        train(backend, backend.stepper(Changes(0.1), arrays(backend)), 1)
