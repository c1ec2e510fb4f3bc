"""cartpole: keep the pole of CartPole-v1 up for a mean of 475 of 500 steps over 100 fresh episodes.

The network makes its own training examples, so a sample is a step of an environment. Evaluations begin in new states
each time, and two in a row have to reach the target, or the last one of a fixed length. Actions at random get 22,
always the same one 9.4, a rule of two numbers 487. 475 is the value at which Gymnasium calls the environment solved.
docs/evidence/small-tasks.md has the commands and the measurements.
"""

from __future__ import annotations

from dataclasses import replace

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.values import Draw
from levelbench.training import Adam, Clip, Recipe, Shuffled, Task
from levelbench.training.datasets.episodes import CartPole, CartPoleStarts
from levelbench.training.experience import Rollouts
from levelbench.training.quality import MeanReturn
from levelbench.training.schedules import Polynomial

task = Task(
    "cartpole",
    data=CartPoleStarts(),
    quality=MeanReturn(target=475.0, environment=CartPole()),
    evaluate_every="4000 samples",
    clock="wall",
    description="balance a pole (reinforcement learning): seconds on a laptop",
)


@task.recipe
def ppo(
    width: int = 64,
    environments: int = 16,
    length: int = 128,
    passes: int = 4,
    batch: int = 64,
    lr: float = 0.001,
    clip: float = 0.2,
    entropy: float = 0.01,
    trace: float = 0.95,
    epochs: int = 200,
) -> Recipe:
    """PPO with clipped ratios, several passes over each rollout; stops once the target is confirmed."""
    return Recipe(
        network=actor_critic(4, 2, width).with_policy_loss(clip=clip, entropy_weight=entropy),
        sampler=Shuffled(batch),
        optimizer=Clip(Adam(lr), norm=0.5),
        experience=Rollouts(environments, length, passes, trace=trace),
        epochs=epochs,
    )


@task.recipe
def annealed(
    width: int = 64,
    environments: int = 16,
    length: int = 128,
    passes: int = 4,
    batch: int = 64,
    lr: float = 0.002,
    clip: float = 0.2,
    entropy: float = 0.01,
    trace: float = 0.95,
    epochs: int = 14,
) -> Recipe:
    """The same with a rate that falls to zero, of fixed length; the target is tested at its end."""
    made = ppo(width, environments, length, passes, batch, lr, clip, entropy, trace, epochs)
    return replace(made, schedule=Polynomial(1.0))


@task.recipe
def a2c(
    width: int = 64,
    environments: int = 16,
    length: int = 32,
    lr: float = 0.002,
    entropy: float = 0.01,
    trace: float = 0.95,
    epochs: int = 400,
) -> Recipe:
    """A2C: one step on each rollout, in which PPO's loss has A2C's gradient; stops once the target is confirmed."""
    return ppo(width, environments, length, 1, environments * length, lr, 0.2, entropy, trace, epochs)


def actor_critic(values: int, actions: int, width: int) -> Network:
    """Two networks of two layers: logits that are almost equal at first, and the value of a state of these values."""
    graph = GraphBuilder("actor-critic")
    state = graph.input("state", ("batch", values))
    for output, last, scale in (("logits", actions, 0.01), ("value", 1, 1.0)):
        value, rows = state, values
        with graph.scope(output):
            for at, (size, gain) in enumerate(((width, 1.4), (width, 1.4), (last, scale))):
                weight = graph.parameter(f"weight{at}", (size, rows), Draw("normal", gain / rows**0.5))
                bias = graph.parameter(f"bias{at}", (size,), Draw("constant", 0.0))
                value, rows = graph.node("Gemm", value, weight, bias, transB=1), size
                if at < 2:
                    value = graph.node("Tanh", value)
        if output == "value":
            value = graph.node("Reshape", value, graph.constant([-1]))
        graph.output(value, output)
    return graph.build()
