import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.errors import DefinitionError
from levelbench.training.datasets.base import SomeRows, Split
from levelbench.training.samplers import (
    Bucketed,
    Partitioned,
    Repeated,
    Sequential,
    Shuffled,
    Stratified,
    Subset,
    Weighted,
    lengths_of,
    some_of,
)


def samplers(batch):
    return [
        Sequential(batch),
        Shuffled(batch),
        Stratified(batch),
        Weighted(batch),
        Weighted(batch, (1.0, 2.0, 3.0), replacement=False),
        Weighted(batch, (0.0, 1.0, 1.0), draws=11),
        Bucketed(batch),
        Bucketed(batch, pool=2),
        Bucketed(batch, tokens=24),
        Partitioned(Shuffled(batch), 1, 3),
        Subset(Shuffled(batch), 5),
        Repeated(Shuffled(batch), 2),
    ]


@settings(max_examples=25)
@given(st.integers(5, 90), st.integers(1, 20), st.integers(0, 2**40), st.integers(0, 1000))
def test_an_exact_sampler_visits_every_example_once_per_epoch(split, n, batch, seed, epoch):
    data = split(n)
    for sampler in samplers(batch):
        drawn = sampler.epoch(data, seed, epoch)
        assert drawn.order.dtype == drawn.bounds.dtype == np.int64, sampler
        assert len(drawn.sizes) == sampler.steps(data), sampler
        assert (drawn.sizes >= (0 if isinstance(sampler, Partitioned) else 1)).all(), sampler
        assert (drawn.bounds[0], drawn.bounds[-1]) == (0, len(drawn.order)), sampler
        if sampler.exact:
            assert np.array_equal(np.sort(drawn.order), np.arange(n)), sampler


@pytest.mark.parametrize("sampler", samplers(10), ids=repr)
def test_an_epoch_depends_on_seed_and_number_alone(split, sampler):
    data = split(120)
    first, again = sampler.epoch(data, 1, 2), sampler.epoch(data, 1, 2)
    assert np.array_equal(first.order, again.order)
    assert np.array_equal(first.bounds, again.bounds)


@pytest.mark.parametrize("sampler", [each for each in samplers(10) if not isinstance(each, Sequential)], ids=repr)
def test_other_seeds_and_epochs_give_other_orders(split, sampler):
    data = split(120)
    first = sampler.epoch(data, 1, 2).order
    assert not np.array_equal(first, sampler.epoch(data, 1, 3).order)
    assert not np.array_equal(first, sampler.epoch(data, 2, 2).order)


def test_the_shuffled_order_is_that_of_published_records(split):
    assert Shuffled(4).epoch(split(10), 7, 3).order.tolist() == [4, 2, 8, 9, 0, 7, 1, 3, 5, 6]


def test_first_places_are_uniform_over_the_samples(split):
    data = split(10)
    counts = np.bincount([Shuffled(1).epoch(data, seed, 0).order[0] for seed in range(5000)], minlength=10)
    assert ((counts - 500) ** 2 / 500).sum() < 27.9  # chi-squared with 9 degrees of freedom, p = 0.001


@pytest.mark.parametrize(("samples", "batch", "steps"), [(10, 5, 2), (11, 5, 3), (1, 5, 1), (1077, 64, 17)])
def test_the_last_batch_of_an_epoch_may_be_smaller(split, samples, batch, steps):
    assert Shuffled(batch).steps(split(samples, 1)) == steps


@pytest.mark.parametrize("kind", [Sequential, Shuffled, Stratified, Weighted])
def test_drop_last_leaves_out_an_incomplete_batch(split, kind):
    sampler = kind(8, drop_last=True)
    assert sampler.epoch(split(30), 0, 0).sizes.tolist() == [8, 8, 8]
    assert sampler.steps(split(30)) == 3
    assert not sampler.exact


def test_leaving_out_the_only_batch_is_refused(split):
    with pytest.raises(DefinitionError, match="smaller batch"):
        Shuffled(31, drop_last=True).steps(split(30))


def test_drop_last_leaves_out_different_examples_each_epoch(split):
    seen = [Shuffled(8, drop_last=True).epoch(split(10), 0, epoch).order for epoch in range(30)]
    assert set(np.concatenate(seen).tolist()) == set(range(10))


def test_an_empty_batch_is_refused():
    with pytest.raises(DefinitionError, match="batch >= 1"):
        Shuffled(0)


def test_classes_of_one_size_are_equally_often_in_every_stratified_batch(split):
    data = split(120, classes=4)
    for epoch in range(3):
        drawn = Stratified(12).epoch(data, 0, epoch)
        assert all(np.bincount(data.labels[drawn.batch(at)]).tolist() == [3, 3, 3, 3] for at in range(10))


@settings(max_examples=25)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=6), st.integers(1, 20), st.integers(0, 99))
def test_a_class_is_never_far_from_its_share_of_the_visits_so_far(sizes, batch, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    order = Stratified(batch).epoch(Split.of(labels[:, None], labels), seed, 0).order
    shares = np.array(sizes) / sum(sizes)
    sofar = np.cumsum(np.eye(len(sizes))[labels[order]], axis=0)
    apart = np.abs(sofar - shares * np.arange(1, len(order) + 1)[:, None])
    assert (apart <= (1 + len(sizes) * shares) / 2 + 1e-9).all()


def test_weighted_draws_come_in_proportion_to_the_weights(split):
    data = split(30)
    order = Weighted(10, (0.0, 1.0, 3.0), draws=40_000).epoch(data, 0, 0).order
    shares = np.bincount(data.labels[order], minlength=3) / 40_000
    assert shares == pytest.approx([0, 0.25, 0.75], abs=0.01)


def test_without_weights_all_classes_are_equally_likely():
    labels = np.repeat([0, 1], [900, 100])
    order = Weighted(10, draws=20_000).epoch(Split.of(labels[:, None], labels), 0, 0).order
    assert labels[order].mean() == pytest.approx(0.5, abs=0.02)


def test_weights_of_examples_are_those_of_each_one(split):
    weights = tuple(float(at) for at in range(10))
    order = Weighted(10, weights, by="example", draws=45_000).epoch(split(10), 0, 0).order
    assert np.bincount(order, minlength=10) == pytest.approx(1000 * np.arange(10), abs=220)


def test_without_replacement_a_heavy_example_comes_early(split):
    weights = (1.0,) * 9 + (9.0,)
    sampler = Weighted(10, weights, by="example", replacement=False)
    first = [sampler.epoch(split(10), seed, 0).order[0] for seed in range(1000)]
    assert np.mean(np.array(first) == 9) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda data: Weighted(4, (-1.0, 1.0, 1.0)), "negative"),
        (lambda data: Weighted(4, (0.0, 0.0, 0.0)), "all are zero"),
        (lambda data: Weighted(4, (0.0, 1.0, 1.0), replacement=False), "without replacement"),
        (lambda data: Weighted(4, by="batch"), "not supported"),
        (lambda data: Weighted(4, draws=0), "empty"),
        (lambda data: Weighted(4, (1.0, 1.0)).epoch(data, 0, 0), "2 weights for 3 classes"),
        (lambda data: Weighted(4, (1.0,), by="example").epoch(data, 0, 0), "1 weights"),
        (lambda data: Weighted(4, replacement=False, draws=99).epoch(data, 0, 0), "there are 30 examples"),
        (lambda data: Bucketed(4, tokens=0), "no tokens"),
        (lambda data: Bucketed(4, column=1).epoch(data, 0, 0), "has one dimension"),
        (lambda data: Bucketed(4, length=lambda _: np.zeros(3)).epoch(data, 0, 0), "its function gave"),
        (lambda data: Partitioned(Shuffled(4), 3, 3), "no such rank"),
        (lambda data: Subset(Shuffled(4), 31).epoch(data, 0, 0), "there are 30"),
        (lambda data: Repeated(Shuffled(4), 0), "empty"),
        (lambda data: Stratified(4).epoch(Split.of(data.inputs, data.inputs * 0.5), 0, 0), "integer"),
    ],
)
def test_impossible_settings_are_refused(split, make, found):
    with pytest.raises(DefinitionError, match=found):
        make(split(30))


def test_bucketed_batches_have_less_padding_than_shuffled_ones(split):
    data = split(512)
    lengths = lengths_of(data, 0, 0)

    def padded(drawn):
        return sum(lengths[drawn.batch(at)].max() * size for at, size in enumerate(drawn.sizes))

    assert padded(Bucketed(16).epoch(data, 0, 0)) < 1.1 * lengths.sum() < padded(Shuffled(16).epoch(data, 0, 0))


def test_batches_by_tokens_are_as_large_as_the_limit_allows(split):
    data = split(300)
    lengths = lengths_of(data, 0, 0)
    drawn = Bucketed(1000, tokens=60).epoch(data, 3, 1)
    costs = [lengths[drawn.batch(at)].max() * size for at, size in enumerate(drawn.sizes)]
    assert max(costs) <= 60
    assert np.mean(costs) > 45


def test_an_example_longer_than_the_tokens_is_a_batch_by_itself():
    data = Split.of(np.ones((3, 9), np.int64), np.zeros(3, np.int64))
    assert Bucketed(8, tokens=4).epoch(data, 0, 0).sizes.tolist() == [1, 1, 1]


def test_bucketed_batches_come_in_random_order(split):
    data = split(512)
    drawn = Bucketed(16).epoch(data, 0, 0)
    means = [lengths_of(data, 0, 0)[drawn.batch(at)].mean() for at in range(len(drawn.sizes))]
    assert means != sorted(means)


def test_a_length_ends_at_the_last_value_that_is_not_padding():
    rows = np.array([[5, 0, 7, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
    assert lengths_of(Split.of(rows, np.zeros(3, np.int64)), 0, 0).tolist() == [3, 0, 4]


@settings(max_examples=30)
@given(st.integers(1, 200), st.integers(1, 33), st.integers(1, 9), st.integers(0, 99))
def test_the_ranks_together_make_up_each_batch_for_any_number_of_them(split, n, batch, ranks, seed):
    data = split(n, 1)
    whole = Shuffled(batch).epoch(data, seed, 1)
    parts = [Partitioned(Shuffled(batch), rank, ranks).epoch(data, seed, 1) for rank in range(ranks)]
    for step in range(len(whole.sizes)):
        together = np.concatenate([part.batch(step) for part in parts])
        assert np.array_equal(together, whole.batch(step))
    sizes = np.stack([part.sizes for part in parts])
    assert (sizes.max(axis=0) - sizes.min(axis=0) <= 1).all()


def test_a_subset_is_the_same_in_every_epoch_and_run(split):
    sampler = Subset(Shuffled(4), 7, choice=3)
    seen = {frozenset(sampler.epoch(split(50), seed, epoch).order.tolist()) for seed in range(3) for epoch in range(3)}
    assert len(seen) == 1
    assert len(next(iter(seen))) == 7


def test_a_subset_gives_its_sampler_the_labels_of_its_own_examples(split):
    data = split(90)
    drawn = Subset(Stratified(9), 60).epoch(data, 0, 0)
    counts = [np.bincount(data.labels[drawn.batch(at)], minlength=3) for at in range(6)]
    assert np.max(np.abs(np.array(counts) - 3)) <= 2


def test_repeated_epochs_follow_each_other_as_one(split):
    data = split(10)
    two = Repeated(Shuffled(4), 2).epoch(data, 0, 3)
    parts = [Shuffled(4).epoch(data, 0, at) for at in (6, 7)]
    assert np.array_equal(two.order, np.concatenate([each.order for each in parts]))
    assert two.sizes.tolist() == [4, 4, 2, 4, 4, 2]


def test_lazy_rows_are_made_only_when_taken(split):
    class Squares:
        shape, dtype, asked = (100, 1), np.dtype(np.int64), []

        def __len__(self):
            return 100

        def take(self, indices, seeds):
            self.asked.append(len(indices))
            return indices[:, None] ** 2

    column = Squares()
    some = some_of(Split.of(column, np.zeros(100, np.int64)), np.array([3, 5, 7]))
    assert isinstance(some.inputs, SomeRows)
    assert column.asked == []
    assert some.inputs.take(np.array([2, 0]), None).tolist() == [[49], [9]]


def test_many_examples_take_little_time():
    labels = np.random.default_rng(0).integers(0, 1000, 2 * 10**5)
    data = Split.of(np.zeros((2 * 10**5, 1), np.int8), labels)
    began = time.process_time()
    for sampler in (Shuffled(256), Partitioned(Shuffled(256), 1, 3), Weighted(256), Stratified(256)):
        sampler.epoch(data, 0, 0)
    assert time.process_time() - began < 3
