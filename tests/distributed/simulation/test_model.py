"""What is trained, as the simulator sees it: a model made small, and the times of its steps."""

import pytest

from levelbench.distributed.simulation.model import Compute, ModelShape, stand_in


@pytest.mark.parametrize("parts", [1, 4, 8])
def test_a_stand_in_keeps_the_bytes_and_the_order_of_the_model(parts):
    model = ModelShape({"first": (10, 100), "large": (5000, 20), "last": (1000,)})
    small = stand_in(model, elements=500, parts=parts)
    elements = sum(shape[0] for shape in small.shapes.values())
    assert len(small.shapes) <= parts
    assert small.scale * 4 * elements == pytest.approx(model.nbytes)
    assert sum(small.weights.values()) == pytest.approx(1)


def test_a_small_model_stands_for_itself():
    model = ModelShape({"weight": (3, 4), "bias": (4,)}, itemsize=2)
    small = stand_in(model)
    assert small.shapes == model.parameters
    assert small.scale == 0.5


def test_measured_steps_are_drawn_again():
    compute = Compute.measured((0.1, 0.2, 0.4), batch=8)
    assert set(compute.draw(0, 50, seed=1)) == {0.1, 0.2, 0.4}
    assert compute.at(16).mean_s == pytest.approx(2 * compute.mean_s)


def test_spread_steps_have_the_mean_and_the_spread_that_were_asked_for():
    drawn = Compute(0.1, 0.03).draw_all(200, 200, seed=0)
    assert drawn.mean() == pytest.approx(0.1, rel=0.01)
    assert drawn.std() == pytest.approx(0.03, rel=0.03)
