"""The CPU's tiles: how parameters are split for an elementwise rule on torch, and that results stay the same."""

import numpy as np
import pytest
from tests.frameworks.optimizing import SHAPES, arrays, assert_close, on_host, opened, plain, train

from levelbench.training.optimizers import SGD, Adam, Momentum

TILE = 1024
CUT = {"first": (4,), "large": (60, 70), "images": (8, 16, 5, 5), "middle": (600,), "last": (3,)}


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles so small that small arrays are split."""
    pytest.importorskip("torch")
    monkeypatch.setattr("levelbench.frameworks.torch.optimizers.TILE", TILE)


def cut(backend, shapes):
    """The tensor names of each tile, and the elements of each of its parts, as a rule gets them."""
    seen = []

    class Looks(SGD):
        def update(self, parameter, gradient, state, step, lr):
            found = parameter.value if isinstance(parameter.value, list) else [parameter.value]
            seen.append([each.numel() for each in found])
            return super().update(parameter, gradient, state, step, lr)

    train(backend, backend.stepper(Looks(0.1), arrays(backend, shapes)), 1, shapes=shapes)
    return seen


@pytest.mark.usefixtures("small_tiles")
class TestCutting:
    def test_each_element_is_in_one_part_and_no_tile_is_larger_than_it_may_be(self):
        seen = cut(opened("torch"), CUT)
        assert sum(map(sum, seen)) == sum(int(np.prod(shape)) for shape in CUT.values())
        assert max(map(sum, seen)) <= TILE

    def test_a_large_tensor_is_cut_in_parts_alike_and_of_whole_cache_lines(self):
        seen = cut(opened("torch"), {"large": (60, 70)})
        assert seen == [[896], [896], [896], [896], [616]]

    def test_small_tensors_are_grouped_whatever_lies_between_them(self):
        seen = cut(opened("torch"), {"first": (4,), "large": (600,), "second": (3,), "larger": (60, 70), "third": (5,)})
        assert [4, 3, 5] in seen
        assert sum(len(each) > 1 for each in seen) == 1


@pytest.mark.usefixtures("small_tiles")
class TestTheWay:
    def test_tensors_larger_than_a_tile_come_out_the_same(self):
        backend, rule = opened("torch"), Adam(0.1, amsgrad=True)
        fast, slow = (arrays(backend, CUT, dtype=np.float32) for _ in range(2))
        steppers = backend.stepper(rule, fast), plain(rule, backend, slow)
        for each in steppers:
            train(backend, each, 2, shapes=CUT, dtype=np.float32)
        assert_close(on_host(backend, fast), on_host(backend, slow), 1e-5)
        assert_close(steppers[0].state(), steppers[1].state(), 1e-5)

    @pytest.mark.parametrize("of_gradients", ["contiguous_format", "channels_last"])
    def test_channels_last_is_cut_in_the_order_of_its_memory(self, of_gradients):
        torch = pytest.importorskip("torch")
        backend = opened("torch")
        shapes = {"images": CUT["images"]}
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 3])
def test_the_root_is_that_of_numpy_to_two_units_in_the_last_place(dtype, count):
    torch = pytest.importorskip("torch")
    from levelbench.frameworks.torch.optimizers import together
    from levelbench.training.optimizers.arrays import sqrt

    limits = np.finfo(dtype)
    values = np.array([0.0, limits.smallest_subnormal, limits.tiny, 0.25, 2.0, 9.0, limits.max, np.inf, -1.0], dtype)
    found = sqrt(together([torch.from_numpy(values)] * count)).value
    with np.errstate(invalid="ignore"):
        wanted = np.sqrt(values)
    for each in found if count > 1 else [found]:
        np.testing.assert_allclose(each.numpy(), wanted, rtol=2 * limits.eps)
