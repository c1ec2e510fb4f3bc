"""Flax and optax."""

import jax
import numpy as np
import optax
from data import VX, Vy, X, y
from flax import linen

import levelbench


class Model(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(10)(linen.relu(linen.Dense(64)(x)))


model, optimizer = Model(), optax.sgd(0.1, momentum=0.9)


@jax.jit
def step(params, state, inputs, labels):
    def loss(params):
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(params, inputs), labels).mean()

    updates, state = optimizer.update(jax.grad(loss)(params), state)
    return optax.apply_updates(params, updates), state


def batches(rng):
    order = rng.permutation(len(X))
    for at in range(0, len(X) - 63, 64):
        yield X[order[at : at + 64]], y[order[at : at + 64]]


with levelbench.track("programs", target={"accuracy": 0.95}, crossing="final") as run:
    params = model.init(jax.random.key(run.seed), X[:1])
    state, rng = optimizer.init(params), np.random.default_rng(run.seed)
    for _epoch in range(12):
        for inputs, labels in run.data(batches(rng)):
            with run.phase("train"):
                params, state = jax.block_until_ready(step(params, state, inputs, labels))
        run.evaluate(lambda: float((model.apply(params, VX).argmax(1) == Vy).mean()))
    levelbench.predict(lambda inputs: model.apply(params, inputs.reshape(-1, 64)).argmax(1))
