"""Samplers: in which order an epoch visits the training set."""

from levelbench.training.samplers.base import Epoch, Sampler
from levelbench.training.samplers.bias import BiasTest, SamplingBias, sampling_bias
from levelbench.training.samplers.bucketed import Bucketed
from levelbench.training.samplers.derived import Partitioned, Repeated, Subset
from levelbench.training.samplers.network import epoch_inputs, sampled
from levelbench.training.samplers.ordered import Sequential
from levelbench.training.samplers.shuffled import Shuffled
from levelbench.training.samplers.stratified import Stratified
from levelbench.training.samplers.weighted import Weighted

__all__ = [
    "BiasTest",
    "Bucketed",
    "Epoch",
    "Partitioned",
    "Repeated",
    "Sampler",
    "SamplingBias",
    "Sequential",
    "Shuffled",
    "Stratified",
    "Subset",
    "Weighted",
    "epoch_inputs",
    "sampled",
    "sampling_bias",
]
