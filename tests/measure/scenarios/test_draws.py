"""The draws are LoadGen's: figures from runs of LoadGen 6.0 with seeds 11, 22 and 33, typed in by hand."""

import numpy as np
import pytest

from levelbench.measure.scenarios import SampleOrder, Seeds, arrivals_ns

SEEDS = Seeds(11, 22, 33)


def test_single_samples_are_drawn_as_loadgen_draws_them():
    assert SampleOrder(100, SEEDS, least_queries=100).draw(3).tolist() == [[94], [91], [79]]


def test_the_least_number_of_queries_is_part_of_the_draw():
    assert SampleOrder(101, SEEDS, least_queries=300).draw(3).tolist() == [[23], [81], [62]]


def test_a_multi_stream_query_holds_neighbours_of_the_shuffled_set():
    drawn = SampleOrder(37, SEEDS, stride=8, least_queries=100).draw(2).tolist()
    assert drawn == [[33, 29, 25, 1, 9, 34, 4, 28], [23, 10, 17, 26, 2, 24, 8, 36]]


def test_a_large_set_is_shuffled_in_single_draws():
    assert SampleOrder(70_000, SEEDS, least_queries=1).draw(3).ravel().tolist() == [31436, 66893, 52033]


def test_offline_repeats_the_whole_set_without_replacement():
    order = SampleOrder(50, SEEDS, least_queries=120)
    drawn = order.whole(120)
    assert drawn[:3].tolist() == [24, 18, 33]
    assert sorted(drawn[:50].tolist()) == sorted(drawn[50:100].tolist()) == list(range(50))
    assert drawn[100:].tolist() == drawn[:20].tolist()


@pytest.mark.parametrize("samples", [1, 2, 3, 10, 1000])
def test_the_set_is_shuffled_and_complete(samples):
    assert sorted(SampleOrder(samples, SEEDS).loaded.tolist()) == list(range(samples))


def test_draws_in_pieces_are_the_draws_in_one():
    whole, pieces = SampleOrder(1000, SEEDS), SampleOrder(1000, SEEDS)
    parts = [pieces.draw(count) for count in (1, 5, 4000, 94)]
    assert np.array_equal(whole.draw(4100), np.concatenate(parts))


def test_samples_are_drawn_evenly():
    counts = np.bincount(SampleOrder(20, SEEDS).draw(20_000).ravel(), minlength=20)
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000)


def test_arrivals_are_loadgens():
    assert arrivals_ns(500, 10**9, 100, 33)[:4].tolist() == [0, 2_340_319, 4_553_292, 9_622_106]


def test_arrivals_go_up_to_the_first_at_or_after_the_end():
    arrivals = arrivals_ns(1000, 10**9, 1, 5)
    assert arrivals[-2] < 10**9 <= arrivals[-1]


def test_arrivals_are_at_least_as_many_as_asked_for():
    assert len(arrivals_ns(1000, 10**6, 500, 5)) == 500
    assert len(arrivals_ns(1000, 0, 1, 5)) == 1


def test_gaps_are_exponential_and_without_memory():
    gaps = np.diff(arrivals_ns(2000, 0, 50_000, 7)) * 1e-9 * 2000
    assert gaps.mean() == pytest.approx(1.0, abs=0.02)
    assert gaps.std() == pytest.approx(1.0, abs=0.03)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.02


def test_one_number_gives_three_independent_seeds():
    seeds = Seeds.of(3)
    assert len({seeds.sample_set, seeds.samples, seeds.schedule}) == 3
    assert Seeds.of(3) == seeds != Seeds.of(4)
    assert Seeds.of(seeds) is seeds
