"""Each rule that optax also has, compared with optax's after every one of 1,000 steps."""

import numpy as np
import pytest

from levelbench.operators.frameworks import open_framework
from levelbench.training import optimizers as ours
from levelbench.training.optimizers.wrappers import Native

jax = pytest.importorskip("jax", reason="JAX is not installed")
optax = pytest.importorskip("optax", reason="optax is not installed")

# The epsilons are large, so that their position matters.
PAIRS = {
    "LAMB": (
        ours.LAMB(0.01, 0.8, 0.95, 1e-2, weight_decay=0.1),
        lambda: optax.lamb(0.01, b1=0.8, b2=0.95, eps=1e-2, weight_decay=0.1),
    ),
    "LARS": (
        ours.LARS(0.1, 0.8, trust=0.02, weight_decay=0.1, epsilon=1e-2),
        lambda: optax.lars(0.1, weight_decay=0.1, trust_coefficient=0.02, eps=1e-2, momentum=0.8),
    ),
    "LARS, Nesterov": (
        ours.LARS(0.1, trust=0.02, nesterov=True),
        lambda: optax.lars(0.1, trust_coefficient=0.02, nesterov=True),
    ),
    "Lion": (ours.Lion(0.01, 0.8, 0.95, weight_decay=0.1), lambda: optax.lion(0.01, b1=0.8, b2=0.95, weight_decay=0.1)),
    "Adam": (ours.Adam(0.01, epsilon=1e-2), lambda: optax.adam(0.01, eps=1e-2)),
    "schedule-free SGD": (
        ours.ScheduleFreeSGD(0.1, beta1=0.8, weight_decay=0.1),
        lambda: optax.contrib.schedule_free_sgd(0.1, b1=0.8, weight_decay=0.1),
    ),
    "schedule-free AdamW": (
        ours.ScheduleFreeAdamW(0.01, epsilon=1e-2, weight_decay=0.1),
        lambda: optax.contrib.schedule_free_adamw(0.01, eps=1e-2, weight_decay=0.1),
    ),
}


@pytest.fixture(scope="module")
def optax_paths(problem):
    """The trajectories of all optax rules, in one compiled loop."""
    asked = problem(1000, "float32", ("weight", "bias"))
    curvature = {n: jax.numpy.asarray(each) for n, each in asked.curvature.items()}
    optimizers = {pair: make() for pair, (_, make) in PAIRS.items()}

    def step(carried, noise):
        after = {}
        for pair, (parameters, state) in carried.items():
            gradients = {n: curvature[n] * w + noise[n] for n, w in parameters.items()}
            updates, state = optimizers[pair].update(gradients, state, parameters)
            after[pair] = optax.apply_updates(parameters, updates), state
        return after, {pair: parameters for pair, (parameters, _) in after.items()}

    start = {n: jax.numpy.asarray(w) for n, w in asked.start.items()}
    noise = {n: jax.numpy.asarray(each) for n, each in asked.noise.items()}
    begun = {pair: (start, optimizer.init(start)) for pair, optimizer in optimizers.items()}
    paths = jax.jit(lambda: jax.lax.scan(step, begun, noise))()[1]
    return asked, {
        pair: np.concatenate([np.asarray(path[n]).reshape(1000, -1) for n in start], axis=1)
        for pair, path in paths.items()
    }


@pytest.mark.parametrize("pair", PAIRS)
def test_a_rule_equals_optax_at_each_of_1000_steps_in_float32(optax_paths, assert_same_path, pair):
    asked, theirs = optax_paths
    assert_same_path(asked.run(PAIRS[pair][0]), theirs[pair], 1e-5)


def started(optimizer):
    """Parameters on JAX, and a stepper of this transformation for them, with two steps made."""
    backend = open_framework("jax", "cpu")
    parameters = {"weight": backend.array(np.ones((2, 3), np.float32)), "bias": backend.array(np.ones(3, np.float32))}
    stepper = Native.of(optimizer).start(backend, parameters)
    for step in (1, 2):
        stepper.step({name: each / 2 for name, each in parameters.items()}, step, 1.0)
    return parameters, stepper


def test_a_schedule_free_transformation_in_a_chain_is_evaluated_with_its_average():
    parameters, stepper = started(optax.chain(optax.clip(1.0), optax.contrib.schedule_free_sgd(0.1)))
    averaged = stepper.averaged()
    expected = optax.contrib.schedule_free_eval_params(stepper._state[1], dict(parameters))
    assert all(np.array_equal(averaged[name], expected[name]) for name in parameters)
    assert not np.array_equal(averaged["bias"], parameters["bias"])
    assert started(optax.sgd(0.1))[1].averaged() is None


def test_a_transformation_with_a_random_key_continues_from_its_state():
    (one, stepper), (two, other) = (started(optax.noisy_sgd(0.1, key=jax.random.key(seed))) for seed in (0, 1))
    for name, each in one.items():
        two[name] = each
    other.restore(stepper.state())
    for parameters, of in ((one, stepper), (two, other)):
        of.step({name: each / 2 for name, each in parameters.items()}, 3, 1.0)
    assert all(np.array_equal(one[name], two[name]) for name in one)
