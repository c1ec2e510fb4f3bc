"""The system under test returns the network's outputs for all kinds of requests."""

from threading import Thread

import numpy as np
import pytest

from levelbench.measure.clocks import FakeClock
from levelbench.networks import zoo
from levelbench.networks.inference import Answerer, Greedy, PreparedFeed, RawFeed
from levelbench.operators.frameworks import open_framework

ROWS = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def backend():
    return open_framework("numpy")


def answerer(backend, batch=1, workers=1, feed=None, fixed=False):
    network = zoo.mlp(4, 3, 2)
    parameters = network.initialise(0)
    made = lambda: backend.executor(network, parameters, trains=False)  # noqa: E731
    return Answerer(backend, made, feed or PreparedFeed(backend, [ROWS]), batch, workers, fixed=fixed)


@pytest.fixture
def expected(backend):
    network = zoo.mlp(4, 3, 2)
    return backend.executor(network, network.initialise(0), trains=False).infer(ROWS)[0]


@pytest.mark.parametrize(("batch", "fixed"), [(1, False), (4, False), (4, True), (16, True)])
def test_answers_are_the_networks_outputs_in_the_requested_order(backend, expected, batch, fixed):
    (found,) = answerer(backend, batch, fixed=fixed).outputs([7, 0, 7, 3, 9])
    np.testing.assert_allclose(found, expected[[7, 0, 7, 3, 9]], rtol=1e-6)


def test_a_fixed_batch_is_all_that_the_network_ever_sees(backend):
    shapes = []

    class Watching(PreparedFeed):
        def inputs(self, indices):
            shapes.append(len(indices))
            return super().inputs(indices)

    answerer(backend, 4, feed=Watching(backend, [ROWS]), fixed=True).answer([0, 1, 2, 3, 4])
    assert shapes == [4, 4]


def test_kept_answers_are_the_outputs(backend, expected):
    asked = answerer(backend, 2)
    asked.keep_answers()
    asked.answer([5, 2, 8])
    kept = asked.kept_answers()
    asked.answer([1])
    assert sorted(kept) == [2, 5, 8]
    assert asked.kept_answers() == {}
    np.testing.assert_allclose(kept[5][0], expected[5], rtol=1e-6)


def test_more_callers_than_workers_wait_and_all_get_their_answers(backend, expected):
    asked = answerer(backend, workers=2)
    found = {}

    def ask(index):
        found[index] = asked.outputs([index])[0]

    threads = [Thread(target=ask, args=(index,)) for index in range(10)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    np.testing.assert_allclose(np.concatenate([found[index] for index in range(10)]), expected, rtol=1e-6)


def test_preprocessing_on_the_clock_or_before_it_gives_the_same_inputs(backend):
    pixels = (np.arange(40).reshape(10, 4) * 6).astype(np.uint8)
    scale = lambda array: array.astype(np.float32) / 255  # noqa: E731
    before, during = PreparedFeed(backend, [pixels], scale), RawFeed(backend, [pixels], scale)
    before.load(np.array([9, 3, 4]))
    wanted = np.array([3, 9])
    np.testing.assert_array_equal(before.inputs(wanted)[0], during.inputs(wanted)[0])
    assert before.inputs(wanted)[0].dtype == np.float32
    assert "preprocessing" in during.includes
    assert "preprocessing" not in before.includes


def test_rows_may_be_preprocessed_on_the_host_if_the_device_cannot(backend):
    pixels = (np.arange(40).reshape(10, 4) * 6).astype(np.uint8)
    scale = lambda array: array.astype(np.float32) / 255  # noqa: E731
    wanted = np.array([3, 9])
    on_device = RawFeed(backend, [pixels], scale).inputs(wanted)[0]
    np.testing.assert_array_equal(RawFeed(backend, [pixels], before=scale).inputs(wanted)[0], on_device)
    prepared = PreparedFeed(backend, [pixels], before=scale)
    prepared.load(wanted)
    np.testing.assert_array_equal(prepared.inputs(wanted)[0], on_device)


def test_prepared_samples_are_not_made_again(backend):
    calls = []

    def scale(array):
        calls.append(len(array))
        return array.astype(np.float32)

    feed = PreparedFeed(backend, [ROWS.astype(np.uint8)], scale)
    feed.load(np.arange(10))
    feed.load(np.arange(9, -1, -1))
    feed.inputs(np.array([1]))
    assert calls == [10]
    feed = PreparedFeed(backend, [ROWS.astype(np.uint8)], scale)
    feed.load(np.arange(5))
    feed.inputs(np.array([7]))
    assert calls == [10, 5, 1]


def test_a_greedy_answer_is_the_likeliest_token_after_each_prefix(backend):
    network = zoo.build("gpt2-tiny", vocabulary=29, width=16, positions=12)
    rows = np.random.default_rng(0).integers(29, size=(5, 12))
    parameters = network.initialise(0)
    made = lambda: backend.executor(network, parameters, trains=False)  # noqa: E731
    greedy = Greedy(prompt=4, tokens=3, clock=FakeClock())
    asked = Answerer(backend, made, PreparedFeed(backend, [rows]), 2, fixed=True, greedy=greedy)
    (found,) = asked.outputs([3, 0, 1])
    for row, answer in zip(rows[[3, 0, 1]], found, strict=True):
        prefix = row[:4].tolist()
        for token in answer:
            (scores,) = made().infer(np.array([prefix]))
            assert token == scores[0, -1].argmax()
            prefix.append(token)
    assert [each.samples for each in greedy.spans] == [(3, 0), (1,)]
    (plain,) = asked.without_greedy().outputs([3])
    assert plain.shape == (1, 12, 29)


def test_a_span_is_from_the_first_token_to_the_last(backend):
    clock = FakeClock()

    class Slow:
        def infer(self, rows):
            clock.advance(2_000_000_000 if not rows[0, 2] else 500_000_000)
            return (np.eye(9)[[[1, 2, 3, 4, 5, 6]]],)

    feed = PreparedFeed(backend, [np.array([[7, 7, 7, 7, 7, 7]])])
    greedy = Greedy(prompt=2, tokens=4, clock=clock)
    Answerer(backend, Slow, feed, greedy=greedy).answer([0])
    assert greedy.spans.pop().decode_ns == 1_500_000_000
    assert clock.now_ns() == 3_500_000_000
