"""acrobot: swing the two links of Acrobot-v1 up to a bar, in at most 100 steps on average over 100 fresh episodes.

As cartpole, with rewards that come late: -1 for each step until the tip is one link's length above the joint, which
actions at random reach in one of fifty episodes of 500 steps. -100 is the value at which Gymnasium calls the
environment solved. docs/evidence/small-tasks.md has the commands and the measurements.
"""

from __future__ import annotations

from levelbench.tasks.cartpole import actor_critic
from levelbench.training import Adam, Clip, Recipe, Shuffled, Task
from levelbench.training.datasets.episodes import Acrobot, AcrobotStarts
from levelbench.training.experience import Rollouts
from levelbench.training.quality import MeanReturn

task = Task(
    "acrobot",
    data=AcrobotStarts(),
    quality=MeanReturn(target=-100.0, environment=Acrobot()),
    evaluate_every="8000 samples",
    clock="wall",
    description="swing two links up (reinforcement learning): a minute on a laptop",
)


@task.recipe
def ppo(
    width: int = 64,
    environments: int = 16,
    length: int = 256,
    passes: int = 4,
    batch: int = 128,
    lr: float = 0.001,
    clip: float = 0.2,
    entropy: float = 0.01,
    trace: float = 0.95,
    epochs: int = 150,
) -> Recipe:
    """PPO with clipped ratios, several passes over each rollout; stops once the target is confirmed."""
    return Recipe(
        network=actor_critic(6, 3, width).with_policy_loss(clip=clip, entropy_weight=entropy),
        sampler=Shuffled(batch),
        optimizer=Clip(Adam(lr), norm=0.5),
        experience=Rollouts(environments, length, passes, trace=trace),
        epochs=epochs,
    )


@task.recipe
def a2c(
    width: int = 64,
    environments: int = 16,
    length: int = 32,
    lr: float = 0.002,
    entropy: float = 0.01,
    trace: float = 0.95,
    epochs: int = 1200,
) -> Recipe:
    """A2C: one step on each rollout, in which PPO's loss has A2C's gradient; stops once the target is confirmed."""
    return ppo(width, environments, length, 1, environments * length, lr, 0.2, entropy, trace, epochs)
