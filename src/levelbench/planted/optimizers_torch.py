"""Optimizers of PyTorch's kind with one planted fault each, and a right one."""

import torch

from levelbench.checks.self_test import Planted


class TorchMomentum(torch.optim.Optimizer):
    """PyTorch's way to write one."""

    def __init__(self, params, lr=0.01, momentum=0.9):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    def skips(self, parameter):
        return False

    def held(self, parameter):
        return self.state[parameter]

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None or self.skips(parameter):
                    continue
                state = self.held(parameter)
                velocity = state.setdefault("velocity", torch.zeros_like(parameter))
                velocity.mul_(group["momentum"]).add_(parameter.grad)
                parameter.add_(velocity, alpha=-self.rate(group))

    def rate(self, group):
        return group["lr"]


class TorchSkipsVectors(TorchMomentum):
    """Biases are never updated."""

    def skips(self, parameter):
        return parameter.ndim == 1


class TorchHidden(TorchMomentum):
    """The velocity is not in the state of the optimizer."""

    def held(self, parameter):
        return self.__dict__.setdefault("hidden", {}).setdefault(parameter, {})


class TorchDeaf(TorchMomentum):
    """A schedule has no effect."""

    def rate(self, group):
        return self.defaults["lr"]


class TorchRight(TorchMomentum):
    """The right one."""


CASES = {
    "TorchSkipsVectors": Planted("vectors are skipped", ("descent",), "momentum"),
    "TorchHidden": Planted("its state is hidden", ("state",), "torch.optim.SGD"),
    "TorchDeaf": Planted("it ignores the schedule", ("rate zero",), "torch.optim.SGD"),
    "TorchRight": Planted(None, (), "torch.optim.SGD"),
    "TorchMomentum": Planted(None, (), "torch.optim.SGD"),
}
