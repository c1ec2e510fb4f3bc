"""Level 2, training: datasets, samplers, optimizers, schedules, tasks and the trainer that turns them."""

from levelbench.training.observers import Observer
from levelbench.training.optimizers import SGD, Adam, Momentum, UpdateRule
from levelbench.training.quality import Quality, Top1
from levelbench.training.samplers import Sampler, Shuffled
from levelbench.training.schedules import Constant, OneCycle, Schedule
from levelbench.training.task import Recipe, Task
from levelbench.training.trainer import Trainer

__all__ = [
    "SGD",
    "Adam",
    "Constant",
    "Momentum",
    "Observer",
    "OneCycle",
    "Quality",
    "Recipe",
    "Sampler",
    "Schedule",
    "Shuffled",
    "Task",
    "Top1",
    "Trainer",
    "UpdateRule",
]
