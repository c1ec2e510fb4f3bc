"""An own model that remembers its answers is caught, and one that computes them is not accused."""

from itertools import repeat

import numpy as np
import pytest

from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.measure.clocks import FakeClock, timed
from levelbench.networks.benchmark.watching import AnswerWatch
from levelbench.operators.benchmark.watching import RefusedError, WrongError

WEIGHTS = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)


class Toy:
    """A model that computes ``function``."""

    mode = "eager"

    def __init__(self, function):
        self.parameters, self._function = {}, function

    def infer(self, *inputs):
        return (self._function(*inputs),)

    def infer_and_backprop(self, x, labels):
        return self._function(x), {"w": self._function(x * labels[:, None])}

    def operations(self, *inputs):
        self.infer(*inputs)
        return 1.0, "float32"


def product(x):
    return x @ WEIGHTS


def remembering(key):
    """A function that remembers the product of each input by ``key``."""
    known = {}

    def function(x):
        return known.setdefault(key(x), x @ WEIGHTS)

    return function


def watched(make, inputs=None, others=None, clock=None, **more):
    """What a watch concludes of a model that ``make`` makes, against others that it (or ``others``) makes."""
    hosts = [np.random.default_rng(1).standard_normal((128, 32)).astype(np.float32)] if inputs is None else inputs
    seconds = (Toy(each()) for each in repeat(others or make))
    watch = AnswerWatch(Toy(make()), seconds, NumpyBackend(), hosts, **more)
    clock = clock or FakeClock(tick_ns=1_000_000)
    for _ in range(30):
        watch.before(1)
        claimed_ns, real_ns, found = timed(watch.work, clock, 1)
        watch.after(found, claimed_ns, real_ns)
    return watch.conclude(clock)


def test_what_is_computed_is_compared_and_right():
    found = watched(lambda: product)
    assert found.errors == {"output": 0.0}
    assert found.checked.startswith("against a second model in mode eager")


@pytest.mark.parametrize(
    "key",
    [
        lambda x: 0,
        lambda x: float(x.flat[0]),
        lambda x: x[:1].tobytes(),
        lambda x: x.__array_interface__["data"][0],
        lambda x: (x.__array_interface__["data"][0], float(x.flat[0])),
    ],
    ids=["nothing", "the first value", "the first row", "the address", "both"],
)
def test_an_answer_that_is_remembered_by_a_part_of_its_inputs_is_wrong(key):
    with pytest.raises(WrongError, match="it remembers results"):
        watched(lambda: remembering(key))


def test_answers_that_are_remembered_by_all_of_the_inputs_are_refused():
    clock = FakeClock()

    def make():
        known = {}

        def function(x):
            key = x.tobytes()
            clock.advance(1_000 if key in known else 100_000)
            return known.setdefault(key, x @ WEIGHTS)

        return function

    with pytest.raises(RefusedError, match="it remembers results"):
        watched(make, clock=clock)


def test_one_that_computes_less_than_its_file_says_is_wrong():
    with pytest.raises(WrongError, match="computes others"):
        watched(lambda: lambda x: np.repeat(x[:1] @ WEIGHTS, len(x), 0), others=lambda: product)


def test_a_step_is_compared_by_its_loss_and_gradients():
    inputs = [
        np.ones((8, 32), np.float32) * np.arange(8, dtype=np.float32)[:, None],
        np.array([3, 1, 2, 0, 5, 4, 1, 0]),
    ]
    assert watched(lambda: product, inputs, trains=True).errors == {"gradient": 0.0}
    with pytest.raises(WrongError):
        watched(lambda: remembering(lambda x: x.shape), inputs, trains=True)


def test_random_results_are_not_accused():
    random = np.random.default_rng(2)
    found = watched(lambda: lambda x: x * random.random(x.shape))
    assert found.checked == "not checked: its results are random, or depend on its earlier calls"


def test_models_with_values_that_no_seed_fixes_are_not_accused():
    random = np.random.default_rng(2)

    def make():
        own = random.standard_normal((32, 32))
        return lambda x: x @ own

    assert watched(make).checked.startswith("not checked: two models of its file differ")


def test_a_table_that_is_kept_for_each_length_is_not_accused():
    def make():
        tables = {}
        return lambda x: x * tables.setdefault(x.shape[1], np.cos(np.arange(x.shape[1])))

    assert watched(make).errors == {"output": 0.0}


def test_tokens_stay_within_their_range():
    table = np.random.default_rng(3).standard_normal((50, 4))
    tokens = np.random.default_rng(4).integers(0, 50, (8, 16))
    assert watched(lambda: lambda ids: table[ids], [tokens]).errors == {"output": 0.0}


def test_row_pointers_stay_as_they_are():
    def sums(x, starts):
        assert list(starts) == [0, 8, 16]
        return np.add.reduceat(x, starts)

    inputs = [np.random.default_rng(5).standard_normal(24), np.array([0, 8, 16])]
    assert watched(lambda: sums, inputs).errors == {"output": 0.0}


def test_an_input_that_is_changed_in_place_is_not_held_against_a_model():
    assert watched(lambda: lambda x: np.maximum(x, 0, out=x) @ WEIGHTS).errors == {"output": 0.0}


def test_a_model_that_fails_on_other_inputs_is_not_checked_and_says_why():
    x = np.random.default_rng(6).random((4, 32)).astype(np.float32)

    def strict(given):
        if given[0, 0] != x[0, 0]:
            raise ValueError("another beginning")
        return given @ WEIGHTS

    found = watched(lambda: strict, [x.copy()]).checked
    assert found == "not checked: on other contents of its inputs it fails: ValueError: another beginning"


def test_inputs_that_cannot_change_are_said():
    assert "they are the same in all calls" in watched(lambda: product, [np.zeros((4, 32), np.float32)]).checked


def test_a_file_that_cannot_be_read_twice_is_not_accused():
    def fails():
        raise RuntimeError("already registered")

    assert watched(lambda: product, others=fails).checked.endswith("fails: RuntimeError: already registered")
