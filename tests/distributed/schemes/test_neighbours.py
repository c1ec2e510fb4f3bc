import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.distributed.schemes.neighbours import GRAPHS, Neighbours, Undirected, make_graph
from levelbench.distributed.schemes.periodic import ModelAveraging
from levelbench.errors import DefinitionError, UnknownNameError, UsageError
from levelbench.training import Momentum

SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16]
EVERY = pytest.mark.parametrize(("name", "size"), [(name, size) for name in GRAPHS for size in SIZES])


def mixing_matrix(graph, step=0):
    """W of a step; row i has the weights of rank i."""
    result = np.zeros((graph.size, graph.size))
    for rank in range(graph.size):
        for source, weight in graph.sources(rank, step).items():
            result[rank, source] = weight
        result[rank, rank] = graph.own(rank, step)
    return result


def contraction(graph):
    """|W_last ... W_1 - 11'/p|: for a symmetric W, the second largest absolute eigenvalue."""
    product = np.eye(graph.size)
    for step in range(graph.rounds):
        product = mixing_matrix(graph, step) @ product
    return np.linalg.norm(product - 1 / graph.size, 2)


@EVERY
def test_rows_and_columns_of_the_mixing_matrix_sum_to_one(name, size):
    graph = make_graph(name, size)
    for step in range(graph.rounds):
        matrix = mixing_matrix(graph, step)
        assert (matrix >= 0).all()
        np.testing.assert_allclose(matrix.sum(0), 1, atol=1e-14)
        np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-14)


@EVERY
def test_targets_and_sources_match(name, size):
    graph = make_graph(name, size)
    for step in range(graph.rounds):
        sent = {(rank, to) for rank in range(size) for to in graph.targets(rank, step)}
        assert sent == {(source, rank) for rank in range(size) for source in graph.sources(rank, step)}
        assert all(rank != to for rank, to in sent)


@EVERY
def test_ranks_reach_agreement(name, size):
    assert contraction(make_graph(name, size)) < 1


@pytest.mark.parametrize("size", SIZES[2:])
def test_the_contraction_of_a_ring_follows_from_its_eigenvalues(size):
    eigenvalues = (1 + 2 * np.cos(2 * np.pi * np.arange(1, size) / size)) / 3
    assert contraction(make_graph("ring", size)) == pytest.approx(np.abs(eigenvalues).max(), abs=1e-14)


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (3, 4), (4, 4), (3, 7), (5, 6)])
def test_the_contraction_of_a_torus_follows_from_its_eigenvalues(rows, columns):
    row = np.cos(2 * np.pi * np.arange(rows) / rows)[:, None]
    column = np.cos(2 * np.pi * np.arange(columns) / columns)
    eigenvalues = np.sort(np.abs(1 + 2 * row + 2 * column).ravel()) / 5
    assert contraction(make_graph("torus", rows * columns)) == pytest.approx(eigenvalues[-2], abs=1e-14)


@pytest.mark.parametrize("size", [2, 4, 6, 8, 12, 16, 20, 32])
def test_the_contraction_of_the_exponential_graph_is_that_of_ying_et_al(size):
    assert contraction(make_graph("exponential", size)) == pytest.approx(
        1 - 2 / (1 + np.ceil(np.log2(size))), abs=1e-14
    )


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_one_peer_agrees_exactly_after_a_period_for_powers_of_two(size):
    graph = make_graph("one-peer", size)
    assert graph.rounds == np.log2(size)
    assert contraction(graph) == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize("size", SIZES)
def test_on_the_complete_graph_ranks_agree_at_once(size):
    assert contraction(make_graph("complete", size)) == pytest.approx(0, abs=1e-14)


def test_a_torus_of_a_prime_number_of_ranks_is_a_ring():
    assert make_graph("torus", 7) == make_graph("ring", 7)


def test_weights_are_those_of_metropolis_and_hastings():
    star = Undirected(4, ((1, 2, 3), (0,), (0,), (0,)))
    np.testing.assert_allclose(mixing_matrix(star)[0], 0.25)
    np.testing.assert_allclose(mixing_matrix(star)[1], [0.25, 0.75, 0, 0])


@given(size=st.integers(4, 24), degree=st.integers(3, 7), seed=st.integers(0, 99))
def test_a_random_graph_gives_each_rank_its_degree_of_neighbours(size, degree, seed):
    if degree < size - 1 and size * degree % 2:
        return
    graph = make_graph("random", size, degree=degree, seed=seed)
    assert {len(graph.targets(rank)) for rank in range(size)} == {min(degree, size - 1)}
    assert contraction(graph) < 1


def test_a_random_graph_follows_from_its_seed():
    assert make_graph("random", 20, seed=1) == make_graph("random", 20, seed=1) != make_graph("random", 20, seed=2)


@pytest.mark.parametrize(("size", "degree"), [(7, 3), (9, 2)])
def test_an_impossible_random_graph_is_refused(size, degree):
    with pytest.raises(UsageError, match="Choose degree=4"):
        make_graph("random", size, degree=degree)


def test_an_unknown_graph_is_refused():
    with pytest.raises(UnknownNameError, match="ring"):
        make_graph("rings", 4)


def test_a_rank_among_thousands_needs_no_matrix():
    graph = make_graph("exponential", 1 << 20)
    assert len(graph.sources(5)) == 20
    assert graph.own(5) == pytest.approx(1 / 21)


LR = 0.1


def models(ends, name="w"):
    """The models of all workers, shape (ranks, elements)."""
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
        matrix = mixing_matrix(fixed, step)
        expected = matrix @ expected - moved if mix == "before" else matrix @ (expected - moved)
    np.testing.assert_allclose(models(ends), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("mix", "rate"), [("before", lambda value: value - LR), ("after", lambda value: value * (1 - LR))]
)
def test_on_a_quadratic_workers_agree_at_the_rate_of_the_second_eigenvalue(play, mix, rate):
    size = 7
    wave = np.cos(2 * np.pi * np.arange(size) / size)
    second = (1 + 2 * np.cos(2 * np.pi / size)) / 3
    assert contraction(make_graph("ring", size)) == pytest.approx(second)
    apart = {}

    def gradient(rank, parameters, step):
        # The first step separates the workers along the eigenvector; then all have the same target.
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
def test_overlap_does_not_change_a_bit(play, graph):
    early, late = (play(Neighbours(graph=graph, overlap=overlap), 5, 7, meet=3) for overlap in (True, False))
    assert (models(early) == models(late)).all()


def test_a_single_worker_equals_one_process(play, begun):
    (end,) = play(Neighbours(), 1, 4)
    np.testing.assert_allclose(end.parameters["b"], 1 + 0.9**4 * (begun["b"] - 1), rtol=1e-13)


def test_impossible_settings_are_refused():
    with pytest.raises(UnknownNameError, match="torus"):
        Neighbours(graph="tours")
    with pytest.raises(DefinitionError, match="before, after"):
        Neighbours(mix="during")


def test_times_come_from_the_workers_clock(play, training):
    ends = play(Neighbours(), 3, 3, clock=training.Still())
    assert [end.notes["overlap"] for end in ends] == [[1, 1]] * 3
