import math

import numpy as np
import pytest

from levelbench.errors import DataError, DefinitionError, MissingError, UnknownNameError, UnsupportedError
from levelbench.operators.frameworks import load_framework
from levelbench.training.optimizers import (
    SGD,
    Adadelta,
    AdaGrad,
    Adam,
    AdamW,
    AveragingRule,
    Lion,
    Momentum,
    NAdam,
    RMSProp,
    ScheduleFreeAdamW,
    ScheduleFreeSGD,
    UpdateRule,
)
from levelbench.training.optimizers.averaging import AveragingStepper
from levelbench.training.optimizers.base import RuleStepper
from levelbench.training.optimizers.native import Native

SHAPES = {"matrix": (5, 3), "vector": (7,), "scalar": (), "empty": (0, 4)}
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


def opened(framework):
    found = load_framework(framework)
    if found.lacks() is not None:
        pytest.skip(f"{framework} is not installed")
    return found.open("cpu")


@pytest.fixture(params=["torch", "jax"])
def backend(request):
    return opened(request.param)


def plain(rule, backend, parameters):
    return (AveragingStepper if isinstance(rule, AveragingRule) else RuleStepper)(rule, backend, parameters)


def arrays(backend, shapes=SHAPES, seed=0, dtype=np.float64):
    random = np.random.default_rng(seed)
    return {name: backend.array(np.asarray(random.standard_normal(shape), dtype)) for name, shape in shapes.items()}


def on_host(backend, given):
    return {name: backend.host(each) for name, each in given.items()}


def train(backend, stepper, steps, first=1, shapes=SHAPES, dtype=np.float64):
    for step in range(first, first + steps):
        stepper.step(arrays(backend, shapes, seed=step, dtype=dtype), step, 1 / step)


def assert_close(left, right, tolerance=1e-12):
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_allclose(left[name], right[name], rtol=tolerance, atol=tolerance, err_msg=name)


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
    def test_one_program_goes_the_way_of_one_array_after_another(self, rule):
        backend, numpy = opened("jax"), opened("numpy")
        fast, slow = arrays(backend), arrays(numpy)
        steppers = backend.stepper(rule, fast), plain(rule, numpy, slow)
        train(backend, steppers[0], 4)
        train(numpy, steppers[1], 4)
        assert_close(on_host(backend, fast), slow)
        assert_close(steppers[0].state(), steppers[1].state())

    def test_a_run_goes_on_bitwise_from_its_state(self, backend):
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
        with pytest.raises(DataError, match="'matrix' is not in it"):
            stepper.restore({"other": np.zeros(3)})


class TestTiles:
    SHAPES = {"large": (600, 700), "small": (4,), "images": (40, 64, 9, 9), "last": (3,)}  # noqa: RUF012

    def test_tensors_larger_than_a_tile_are_cut_and_come_out_the_same(self):
        backend = opened("torch")
        from levelbench.frameworks.torch.optimizers import TILE

        assert math.prod(self.SHAPES["large"]) > 3 * TILE
        rule = Adam(0.1, amsgrad=True)
        fast, slow = (arrays(backend, self.SHAPES, dtype=np.float32) for _ in range(2))
        steppers = backend.stepper(rule, fast), plain(rule, backend, slow)
        for each in steppers:
            train(backend, each, 2, shapes=self.SHAPES, dtype=np.float32)
        assert_close(on_host(backend, fast), on_host(backend, slow), 1e-5)
        assert_close(steppers[0].state(), steppers[1].state(), 1e-5)

    @pytest.mark.parametrize("of_gradients", ["contiguous_format", "channels_last"])
    def test_channels_last_is_cut_in_the_order_of_its_memory(self, of_gradients):
        torch = pytest.importorskip("torch")
        backend = opened("torch")
        shapes = {"images": self.SHAPES["images"]}
        rule = Momentum(0.1)
        fast, slow = arrays(backend, shapes), arrays(backend, shapes)
        fast = {name: each.contiguous(memory_format=torch.channels_last) for name, each in fast.items()}
        steppers = backend.stepper(rule, fast), plain(rule, backend, slow)
        for step in (1, 2):
            gradients = arrays(backend, shapes, seed=step)["images"]
            layout = getattr(torch, of_gradients)
            steppers[0].step({"images": gradients.clone(memory_format=layout)}, step, 1.0)
            steppers[1].step({"images": gradients}, step, 1.0)
        assert fast["images"].is_contiguous(memory_format=torch.channels_last)
        assert_close(on_host(backend, fast), on_host(backend, slow))

    def test_a_parameter_that_was_replaced_is_the_one_that_is_updated(self):
        backend = opened("torch")
        parameters = arrays(backend)
        stepper = backend.stepper(SGD(0.1), parameters)
        train(backend, stepper, 1)
        parameters["vector"] = backend.array(np.zeros(7))
        stepper.step({name: backend.array(np.ones(SHAPES[name])) for name in SHAPES}, 2, 1.0)
        np.testing.assert_allclose(backend.host(parameters["vector"]), -0.1)


class Stepped(UpdateRule):
    """Asks for the number of the step, as a rule in plain Python may."""

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
    with pytest.raises(DefinitionError, match="not of the kind that it began with"):
        train(backend, backend.stepper(Changes(0.1), arrays(backend)), 1)


class TestNative:
    PAIRS = (
        (Native("torch.optim.SGD", lr=0.1, momentum=0.9, nesterov=True), Momentum(0.1, nesterov=True)),
        (Native("torch.optim.AdamW", lr=0.1, fused=True), AdamW(0.1)),
        (Native("torch.optim.AdamW", lr=0.1, foreach=True), AdamW(0.1)),
        (Native("optax.adamw", lr=0.1, weight_decay=0.01), AdamW(0.1)),
        (Native("optax.sgd", lr=0.1, momentum=0.9), Momentum(0.1)),
    )

    @pytest.mark.parametrize(("native", "ours"), PAIRS, ids=lambda each: getattr(each, "name", ""))
    def test_a_frameworks_own_goes_the_way_of_ours(self, native, ours):
        if native.framework == "jax":
            pytest.importorskip("optax")
        backend = opened(native.framework)
        theirs, mine = arrays(backend), arrays(backend)
        train(backend, native.start(backend, theirs), 3)
        train(backend, plain(ours, backend, mine), 3)
        assert_close(on_host(backend, theirs), on_host(backend, mine), 1e-10)

    @pytest.mark.parametrize("name", ["torch.optim.NAdam", "torch.optim.SGD", "optax.adam"])
    def test_it_goes_on_bitwise_from_its_state(self, name):
        native = Native(name, lr=0.1)
        if native.framework == "jax":
            pytest.importorskip("optax")
        backend = opened(native.framework)
        through, parts = arrays(backend), arrays(backend)
        train(backend, native.start(backend, through), 4)
        before = native.start(backend, parts)
        train(backend, before, 2)
        after = native.start(backend, parts)
        after.restore(before.state())
        train(backend, after, 2, first=3)
        for each in SHAPES:
            np.testing.assert_array_equal(backend.host(through[each]), backend.host(parts[each]))

    def test_the_gradients_are_not_kept(self):
        backend = opened("torch")
        parameters = arrays(backend)
        train(backend, Native("torch.optim.SGD", lr=0.1).start(backend, parameters), 1)
        assert all(each.grad is None for each in parameters.values())

    def test_a_name_that_is_not_there_is_answered_with_the_nearest(self):
        with pytest.raises(UnknownNameError, match=r"torch\.optim\.AdamW"):
            Native("torch.optim.adamw", lr=0.1)

    def test_a_setting_that_it_does_not_take_is_told(self):
        with pytest.raises(DefinitionError, match="momentun"):
            Native("torch.optim.SGD", lr=0.1, momentun=0.9).start(opened("torch"), arrays(opened("torch")))

    def test_a_rate_that_is_not_positive_is_refused(self):
        with pytest.raises(DefinitionError, match="not positive"):
            Native("torch.optim.SGD", lr=0.0)

    def test_another_framework_refuses_it(self):
        numpy = opened("numpy")
        with pytest.raises(UnsupportedError, match="Use torch"):
            Native("torch.optim.SGD", lr=0.1).start(numpy, arrays(numpy))

    def test_a_state_of_other_parameters_is_refused(self):
        backend = opened("torch")
        with pytest.raises(DataError, match="belongs to no parameter here"):
            Native("torch.optim.SGD", lr=0.1).start(backend, arrays(backend)).restore({"other/x": np.zeros(3)})

    def test_optax_that_is_not_installed_is_named(self, monkeypatch):
        backend = opened("jax")
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(MissingError, match="levelbench"):
            Native("optax.adam", lr=0.1).start(backend, arrays(backend))

    def test_equal_settings_make_equal_descriptions(self):
        one = Native("torch.optim.Adam", lr=0.1, betas=[0.8, 0.9], eps=1e-7)
        assert one == Native("torch.optim.Adam", lr=0.1, eps=1e-7, betas=(0.8, 0.9))
        assert hash(one) == hash(Native("torch.optim.Adam", lr=0.1, eps=1e-7, betas=(0.8, 0.9)))
