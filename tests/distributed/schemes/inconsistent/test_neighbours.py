import numpy as np
import pytest

from levelbench.distributed.schemes.neighbours import GRAPHS, Neighbours, make_graph
from levelbench.distributed.schemes.periodic import ModelAveraging
from levelbench.errors import DefinitionError, UnknownNameError
from levelbench.training import Momentum

LR = 0.1


def models(ends, name="w"):
    """All workers' models, shape (ranks, elements)."""
    return np.array([end.parameters[name].ravel() for end in ends])


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("mix", ["before", "after"])
def test_models_follow_the_mixing_matrix(play, begun, graph, mix):
    size = 6
    ends = play(Neighbours(graph=graph, mix=mix), size, 7)
    expected, targets = np.array([begun["w"].ravel()] * size), np.arange(1, size + 1)[:, None]
    fixed = make_graph(graph, size, seed=3)
    for step in range(7):
        moved = LR * (expected - targets)
        matrix = fixed.matrix(step)
        expected = matrix @ expected - moved if mix == "before" else matrix @ (expected - moved)
    np.testing.assert_allclose(models(ends), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("mix", "rate"), [("before", lambda value: value - LR), ("after", lambda value: value * (1 - LR))]
)
def test_on_a_quadratic_workers_agree_at_the_rate_of_the_second_eigenvalue(play, mix, rate):
    size = 7
    wave = np.cos(2 * np.pi * np.arange(size) / size)
    second = (1 + 2 * np.cos(2 * np.pi / size)) / 3
    assert make_graph("ring", size).contraction == pytest.approx(second)
    apart = {}

    def gradient(rank, parameters, step):
        # The first step sets the workers apart along the eigenvector; then all have one target.
        return {name: each - 1 if step > 1 else np.full_like(each, wave[rank]) for name, each in parameters.items()}

    def after(rank, step, stepper):
        apart[rank, step] = stepper.parameters["b"][0]

    play(Neighbours(mix=mix), size, 9, gradient=gradient, after=after)
    distance = [np.linalg.norm([apart[rank, step] - apart[0, step] for rank in range(size)]) for step in range(1, 10)]
    np.testing.assert_allclose(np.array(distance[1:]) / distance[:-1], rate(second), rtol=1e-9)


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_mean_of_all_models_moves_by_the_mean_gradient(play, begun, graph):
    ends = play(Neighbours(graph=graph), 5, 8)
    np.testing.assert_allclose(ends[3].averaged["b"], 3 + 0.9**8 * (begun["b"] - 3), rtol=1e-12)


def test_on_the_complete_graph_mixing_after_the_update_is_model_averaging(play):
    mixed = play(Neighbours(graph="complete", mix="after"), 4, 6, optimizer=Momentum(0.1, 0.9))
    averaged = play(ModelAveraging(), 4, 6, optimizer=Momentum(0.1, 0.9))
    np.testing.assert_allclose(models(mixed), models(averaged), rtol=1e-13)


@pytest.mark.parametrize("graph", ["ring", "one-peer"])
def test_messages_that_travel_during_the_gradient_bring_the_same_bits(play, graph):
    early, late = (play(Neighbours(graph=graph, overlap=overlap), 5, 7, meet=3) for overlap in (True, False))
    assert (models(early) == models(late)).all()


def test_a_worker_alone_steps_as_one_process(play, begun):
    (end,) = play(Neighbours(), 1, 4)
    np.testing.assert_allclose(end.parameters["b"], 1 + 0.9**4 * (begun["b"] - 1), rtol=1e-13)


def test_settings_that_cannot_be_meant_are_refused():
    with pytest.raises(UnknownNameError, match="torus"):
        Neighbours(graph="tours")
    with pytest.raises(DefinitionError, match="before, after"):
        Neighbours(mix="during")


class Still:
    """A clock that stands still, as a simulated one does while a rank computes."""

    def now_ns(self):
        return 5


def test_what_is_timed_is_timed_by_the_workers_clock(play):
    ends = play(Neighbours(), 3, 3, clock=Still())
    assert [end.notes["overlap"] for end in ends] == [[1, 1]] * 3
