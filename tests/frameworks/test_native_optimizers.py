"""A framework's own optimizers under our contract."""

import numpy as np
import pytest
from tests.frameworks.optimizing import SHAPES, arrays, assert_close, on_host, opened, plain, train

from levelbench.errors import DataError, DefinitionError, MissingError, UnknownNameError, UnsupportedError
from levelbench.training.optimizers import AdamW, Momentum
from levelbench.training.optimizers.wrappers import Native


class TestNative:
    PAIRS = (
        (Native("torch.optim.SGD", lr=0.1, momentum=0.9, nesterov=True), Momentum(0.1, nesterov=True)),
        (Native("torch.optim.AdamW", lr=0.1, fused=True), AdamW(0.1)),
        (Native("torch.optim.AdamW", lr=0.1, foreach=True), AdamW(0.1)),
        (Native("optax.adamw", lr=0.1, weight_decay=0.01), AdamW(0.1)),
        (Native("optax.sgd", lr=0.1, momentum=0.9), Momentum(0.1)),
    )

    @pytest.mark.parametrize(("native", "ours"), PAIRS, ids=lambda each: getattr(each, "name", ""))
    def test_a_frameworks_own_gives_the_same_results_as_ours(self, native, ours):
        if native.framework == "jax":
            pytest.importorskip("optax")
        backend = opened(native.framework)
        theirs, mine = arrays(backend), arrays(backend)
        train(backend, native.start(backend, theirs), 3)
        train(backend, plain(ours, backend, mine), 3)
        assert_close(on_host(backend, theirs), on_host(backend, mine), 1e-10)

    @pytest.mark.parametrize("name", ["torch.optim.NAdam", "torch.optim.SGD", "optax.adam"])
    def test_it_continues_bitwise_from_its_state(self, name):
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

    def test_optax_compiles_a_step_once(self):
        pytest.importorskip("optax")
        from levelbench.frameworks.jax.optimizers import _optax_program

        native, backend = Native("optax.adamw", lr=0.1, weight_decay=0.03), opened("jax")
        train(backend, native.start(backend, arrays(backend)), 3)
        assert _optax_program(native)._cache_size() == 1

    def test_python_numbers_in_the_state_stay_python_numbers(self):
        torch = pytest.importorskip("torch")

        class Warming(torch.optim.Optimizer):
            """Its rate rises with a count of steps, which is an `int`."""

            def __init__(self, params, lr=0.1):
                super().__init__(params, {"lr": lr})

            @torch.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for each in group["params"]:
                        held = self.state[each]
                        assert isinstance(held.setdefault("t", 0), int)
                        held["t"] += 1
                        each -= group["lr"] * (1 - 0.9 ** held["t"]) * each.grad

        native, backend = Native.of(Warming), opened("torch")
        through, parts = arrays(backend), arrays(backend)
        train(backend, native.start(backend, through), 4)
        before = native.start(backend, parts)
        train(backend, before, 2)
        after = native.start(backend, parts)
        after.restore(before.state())
        train(backend, after, 2, first=3)
        for each in SHAPES:
            np.testing.assert_array_equal(backend.host(through[each]), backend.host(parts[each]))

    @pytest.mark.parametrize("used", [False, True])
    def test_what_is_kept_for_all_parameters_is_resumed(self, used):
        torch = pytest.importorskip("torch")

        class Estimating(torch.optim.Optimizer):
            """Keeps an estimate and all norms in its group, as Prodigy keeps its distance."""

            def __init__(self, params, lr=0.1):
                super().__init__(params, {"lr": lr, "estimate": 1.0})

            @torch.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    norm = float(sum(each.grad.square().sum() for each in group["params"]))
                    group["norms"] = [*group.get("norms", []), norm]
                    group["estimate"] = 0.9 * group["estimate"] + 0.1 * max(group["norms"])
                    for each in group["params"]:
                        each -= group["lr"] / group["estimate"] * each.grad

        native, backend = Native.of(Estimating), opened("torch")
        through, parts = arrays(backend), arrays(backend)
        train(backend, native.start(backend, through), 4)
        before = native.start(backend, parts)
        train(backend, before, 2)
        state, after = before.state(), native.start(backend, parts)
        if used:
            other = native.start(backend, arrays(backend))
            train(backend, other, 3)
            after = native.start(backend, parts)
            after.restore(other.state())
        after.restore(state)
        train(backend, after, 2, first=3)
        for each in SHAPES:
            np.testing.assert_array_equal(backend.host(through[each]), backend.host(parts[each]))

    def test_numbers_of_earlier_checkpoints_are_read_as_tensors(self):
        backend = opened("torch")
        native, parameters = Native("torch.optim.Adam", lr=0.1), arrays(backend)
        before = native.start(backend, parameters)
        train(backend, before, 1)
        unmarked = {name: each for name, each in before.state().items() if not name.endswith("#")}
        after = native.start(backend, parameters)
        after.restore({**unmarked, f"{next(iter(SHAPES))}/extra": np.array(3)})
        assert after.state()[f"{next(iter(SHAPES))}/extra"] == 3

    def test_the_gradients_are_not_kept(self):
        backend = opened("torch")
        parameters = arrays(backend)
        train(backend, Native("torch.optim.SGD", lr=0.1).start(backend, parameters), 1)
        assert all(each.grad is None for each in parameters.values())

    def test_a_name_that_does_not_exist_is_answered_with_the_nearest(self):
        with pytest.raises(UnknownNameError, match=r"torch\.optim\.AdamW"):
            Native("torch.optim.adamw", lr=0.1)

    def test_a_setting_that_it_does_not_take_is_reported(self):
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
        with pytest.raises(DataError, match="does not belong to any parameter"):
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
