"""Flax and optax."""

import jax
import numpy as np
import optax
from data import SEED, VX, Vy, X, y
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


def accuracy(params):
    return float((model.apply(params, VX).argmax(1) == Vy).mean())


params = model.init(jax.random.key(SEED), X[:1])
state, rng = optimizer.init(params), np.random.default_rng(SEED)
batches, step, accuracy = levelbench.phases(data=batches, train=step, evaluate=accuracy)
for epoch in range(12):
    for inputs, labels in batches(rng):
        params, state = step(params, state, inputs, labels)
    print(f"epoch {epoch + 1}: accuracy {accuracy(params):.4f}")
levelbench.predict(lambda inputs: model.apply(params, inputs.reshape(-1, 64)).argmax(1))
