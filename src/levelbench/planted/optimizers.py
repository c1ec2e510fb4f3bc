"""Optimizers, right ones and ones with a single planted fault, as rules and as PyTorch's own kind.

``claims`` names the reference: one of levelbench's rules, or one of ``torch.optim``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from levelbench.checks.self_test import Planted
from levelbench.networks.executor import Array
from levelbench.planted.case import cases
from levelbench.training.optimizers import UpdateRule
from levelbench.training.optimizers.arrays import copy, maximum, mix, namespace, norm, sign, sqrt, where, zeros_like
from levelbench.training.optimizers.base import State

Updated = tuple[Array, State]


# Gradient descent and momentum.


@dataclass(frozen=True)
class Descent(UpdateRule):
    """w - lr (g + decay w), in place."""

    claims: ClassVar[str] = "sgd"
    lr: float = 0.01
    weight_decay: float = 0.0

    def init(self, parameter: Array) -> State:
        return None

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        parameter *= 1 - lr * self.weight_decay
        parameter -= lr * gradient
        return parameter, state


class DescentNew(Descent):
    """Into a new array."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        return parameter - lr * (gradient + self.weight_decay * parameter), state


class DescentUphill(Descent):
    """Steps go uphill."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        parameter += lr * gradient
        return parameter, state


class DescentFixedRate(Descent):
    """The schedule is ignored: the rate is always that of the optimizer."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        parameter -= self.lr * gradient
        return parameter, state


class DescentLimitedRate(Descent):
    """A rate above 0.1 is taken for 0.1."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        return super().update(parameter, gradient, state, step, min(lr, 0.1))


class DescentDropsNaN(Descent):
    """NaN in a gradient counts as zero and leaves no trace."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        return super().update(parameter, where(gradient == gradient, gradient, 0.0), state, step, lr)


class DescentStopsLate(Descent):
    """After step 1000 the rate falls by a thousandth with each further step."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        return super().update(parameter, gradient, state, step, lr * 0.999 ** max(0, step - 1000))


@dataclass(frozen=True)
class DescentOnlyMatrices(Descent):
    """Weight decay is left out for parameters with fewer than two axes."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        if parameter.ndim < 2:
            return parameter - lr * gradient, state
        return super().update(parameter, gradient, state, step, lr)

    weight_decay: float = 0.01


class DescentBlocks(Descent):
    """In arrays beyond 65,536 elements, those after the last whole block of 1024 do not move."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        size = math.prod(parameter.shape)
        if size <= 1 << 16:
            return super().update(parameter, gradient, state, step, lr)
        xp = namespace(parameter)
        reached = xp.reshape(xp.arange(size) < size // 1024 * 1024, parameter.shape)
        return parameter - lr * where(reached, gradient, 0.0), state


class DescentFourAxes(Descent):
    """Parameters of five axes are left as they are."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        return super().update(parameter, gradient, state, step, lr) if parameter.ndim < 5 else (parameter, state)


class DescentDoublesScalars(Descent):
    """A parameter without axes moves twice as far."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        return super().update(parameter, gradient, state, step, 2 * lr if parameter.ndim == 0 else lr)


@dataclass(frozen=True)
class Heavy(UpdateRule):
    """v = momentum v + g; w = w - lr v, with Nesterov's step on demand."""

    claims: ClassVar[str] = "momentum"
    lr: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False

    def init(self, parameter: Array) -> State:
        return zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        velocity = self.momentum * state + gradient
        along = gradient + self.momentum * velocity if self.nesterov else velocity
        return parameter - lr * along, velocity


class HeavyInTuple(Heavy):
    """The state lies in a tuple, with a number beside it that counts steps."""

    def init(self, parameter: Array) -> State:
        return zeros_like(parameter), 0

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        velocity, count = state
        parameter, velocity = super().update(parameter, gradient, velocity, step, lr)
        return parameter, (velocity, count + 1)


class HeavyNegative(Heavy):
    """The velocity points downhill, and is added."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        state *= self.momentum
        state -= gradient
        along = self.momentum * state - gradient if self.nesterov else state
        parameter += lr * along
        return parameter, state


@dataclass(frozen=True)
class HeavyNesterov(Heavy):
    """With Nesterov's step by default."""

    nesterov: bool = True


class HeavyDampened(Heavy):
    """The gradient enters the velocity with the factor 1 - momentum."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        return super().update(parameter, (1 - self.momentum) * gradient, state, step, lr)


class HeavyRateInside(Heavy):
    """The rate is inside the velocity, which shows when a schedule changes it."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        velocity = self.momentum * state + lr * gradient
        return parameter - velocity, velocity


@dataclass(frozen=True)
class HeavyLateNesterov(HeavyNesterov):
    """Nesterov's step uses the velocity before it is renewed."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        velocity = self.momentum * state + gradient
        return parameter - lr * (gradient + self.momentum * state), velocity


class HeavyKeepsGradient(Heavy):
    """In the first step the velocity is the gradient's own array, which its owner overwrites."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        if step == 1:
            return parameter - lr * gradient, gradient
        return super().update(parameter, gradient, state, step, lr)


_VELOCITIES: dict[tuple[int, ...], Array] = {}


class HeavyUnsaved(Heavy):
    """Velocities lie outside of the state, by the shape of their parameters, so they are neither saved nor separate."""

    def init(self, parameter: Array) -> State:
        return None

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        known = _VELOCITIES.get(tuple(parameter.shape)) if step > 1 else None
        velocity = gradient + (0 if known is None else self.momentum * known)
        _VELOCITIES[tuple(parameter.shape)] = copy(velocity)
        return parameter - lr * velocity, None


class HeavyNarrow(Heavy):
    """The velocity is kept in single precision."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        xp = namespace(parameter)
        velocity = xp.astype(xp.astype(self.momentum * state + gradient, xp.float32), parameter.dtype)
        return parameter - lr * velocity, velocity


# Adam and its relatives.


@dataclass(frozen=True)
class Moments(UpdateRule):
    """Adam as in its paper."""

    claims: ClassVar[str] = "adam"
    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def init(self, parameter: Array) -> State:
        return zeros_like(parameter), zeros_like(parameter)

    def moments(self, gradient: Array, state: State) -> State:
        """The moments after another gradient."""
        first, second = state
        return (
            self.beta1 * first + (1 - self.beta1) * gradient,
            self.beta2 * second + (1 - self.beta2) * gradient * gradient,
        )

    def way(self, first: Array, second: Array, step: int) -> Array:
        """The step for a rate of 1."""
        return first / (1 - self.beta1**step) / (sqrt(second / (1 - self.beta2**step)) + self.epsilon)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        first, second = self.moments(gradient, state)
        return parameter - lr * self.way(first, second, step), (first, second)


class MomentsFolded(Moments):
    """Both corrections in one factor, as at the end of section 2 of the paper, with epsilon scaled to fit."""

    def way(self, first: Array, second: Array, step: int) -> Array:
        correction = math.sqrt(1 - self.beta2**step)
        return correction / (1 - self.beta1**step) * first / (sqrt(second) + self.epsilon * correction)


class MomentsMixed(Moments):
    """Moments by steps towards the gradient, in place."""

    def moments(self, gradient: Array, state: State) -> State:
        first, second = state
        return mix(first, gradient, 1 - self.beta1), mix(second, gradient * gradient, 1 - self.beta2)


@dataclass(frozen=True)
class MomentsProducts(Moments):
    """The powers of both betas are kept in the state."""

    def init(self, parameter: Array) -> State:
        return zeros_like(parameter), zeros_like(parameter), 1.0, 1.0

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        first, second = self.moments(gradient, state[:2])
        one, two = state[2] * self.beta1, state[3] * self.beta2
        way = first / (1 - one) / (sqrt(second / (1 - two)) + self.epsilon)
        return parameter - lr * way, (first, second, one, two)


@dataclass(frozen=True)
class MomentsDecoupled(Moments):
    """AdamW: decay apart from the moments."""

    claims: ClassVar[str] = "adamw"
    weight_decay: float = 0.01

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        first, second = self.moments(gradient, state)
        return parameter - lr * (self.weight_decay * parameter + self.way(first, second, step)), (first, second)


class MomentsUncorrected(Moments):
    """There is no bias correction."""

    def way(self, first: Array, second: Array, step: int) -> Array:
        return first / (sqrt(second) + self.epsilon)


class MomentsStepFromZero(Moments):
    """The bias correction counts one step too many."""

    def way(self, first: Array, second: Array, step: int) -> Array:
        return super().way(first, second, step + 1)


class MomentsEpsilonInside(Moments):
    """Epsilon is inside the root."""

    def way(self, first: Array, second: Array, step: int) -> Array:
        return first / (1 - self.beta1**step) / sqrt(second / (1 - self.beta2**step) + self.epsilon)


class MomentsEpsilonBefore(Moments):
    """Epsilon is added before the bias correction."""

    def way(self, first: Array, second: Array, step: int) -> Array:
        correction = math.sqrt(1 - self.beta2**step)
        return correction / (1 - self.beta1**step) * first / (sqrt(second) + self.epsilon)


class MomentsCorrectionEnds(Moments):
    """The bias correction ends after step 1000."""

    def way(self, first: Array, second: Array, step: int) -> Array:
        return super().way(first, second, step if step <= 1000 else 10**9)


class MomentsLateGradient(Moments):
    """The second moment leaves out the current gradient from the second step on."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        first, second = self.moments(gradient, state)
        return parameter - lr * self.way(first, second if step == 1 else state[1], step), (first, second)


class MomentsRootOfFirst(Moments):
    """The first moment is corrected with the second's beta."""

    def way(self, first: Array, second: Array, step: int) -> Array:
        return first / (1 - self.beta2**step) / (sqrt(second / (1 - self.beta2**step)) + self.epsilon)


@dataclass(frozen=True)
class MomentsCoupled(MomentsDecoupled):
    """Weight decay is part of the gradient, as in Adam, where AdamW is claimed."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        return Moments.update(self, parameter, gradient + self.weight_decay * parameter, state, step, lr)


@dataclass(frozen=True)
class MomentsDecayWithoutRate(MomentsDecoupled):
    """Weight decay is not multiplied by the rate."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        first, second = self.moments(gradient, state)
        return (1 - self.lr * self.weight_decay) * parameter - lr * self.way(first, second, step), (first, second)


@dataclass(frozen=True)
class MomentsHighest(Moments):
    """AMSGrad, the highest second moment before the correction, as in PyTorch."""

    claims: ClassVar[str] = "torch.optim.Adam"
    amsgrad: bool = True

    def init(self, parameter: Array) -> State:
        return zeros_like(parameter), zeros_like(parameter), zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        first, second = self.moments(gradient, state[:2])
        highest = maximum(state[2], second)
        return parameter - lr * self.way(first, highest, step), (first, second, highest)


@dataclass(frozen=True)
class MomentsHighestForgets(MomentsHighest):
    """AMSGrad keeps only the higher of the last two second moments."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        first, second = self.moments(gradient, state[:2])
        highest = maximum(state[2], second)
        return parameter - lr * self.way(first, highest, step), (first, second, copy(second))


# Others.


@dataclass(frozen=True)
class RootMean(UpdateRule):
    """RMSProp as in PyTorch."""

    claims: ClassVar[str] = "rmsprop"
    lr: float = 0.01
    alpha: float = 0.99
    epsilon: float = 1e-8

    def init(self, parameter: Array) -> State:
        return zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        state = mix(state, gradient * gradient, 1 - self.alpha)
        return parameter - lr * gradient / (sqrt(state) + self.epsilon), state


class RootMeanStartsFull(RootMean):
    """The mean square begins with the first gradient's square."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        return super().update(parameter, gradient, gradient * gradient if step == 1 else state, step, lr)


@dataclass(frozen=True)
class SquareSum(UpdateRule):
    """AdaGrad."""

    claims: ClassVar[str] = "adagrad"
    lr: float = 0.01
    epsilon: float = 1e-10

    def init(self, parameter: Array) -> State:
        return zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        state = state + gradient**2
        return parameter - (lr * gradient) / (sqrt(state) + self.epsilon), state


class SquareSumNarrow(SquareSum):
    """The sum of squares is kept in half precision, where it stops growing and overflows."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        xp = namespace(parameter)
        state = xp.astype(xp.astype(state + gradient**2, xp.float16), parameter.dtype)
        return parameter - lr * gradient / (sqrt(state) + self.epsilon), state


@dataclass(frozen=True)
class Signs(UpdateRule):
    """Lion."""

    claims: ClassVar[str] = "lion"
    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0

    def init(self, parameter: Array) -> State:
        return zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        way = sign(self.beta1 * state + (1 - self.beta1) * gradient) + self.weight_decay * parameter
        return parameter - lr * way, self.beta2 * state + (1 - self.beta2) * gradient


class SignsOneBeta(Signs):
    """The moment is renewed with the first beta."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        state = self.beta1 * state + (1 - self.beta1) * gradient
        return parameter - lr * (sign(state) + self.weight_decay * parameter), state


@dataclass(frozen=True)
class Deltas(UpdateRule):
    """Adadelta."""

    claims: ClassVar[str] = "adadelta"
    lr: float = 1.0
    rho: float = 0.9
    epsilon: float = 1e-6

    def init(self, parameter: Array) -> State:
        return zeros_like(parameter), zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        squares = self.rho * state[0] + (1 - self.rho) * gradient**2
        way = sqrt((state[1] + self.epsilon) / (squares + self.epsilon)) * gradient
        return parameter - lr * way, (squares, self.rho * state[1] + (1 - self.rho) * way**2)


class DeltasOfSteps(Deltas):
    """Steps enter their mean square multiplied by the rate, which shows if that is not 1."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        squares = self.rho * state[0] + (1 - self.rho) * gradient**2
        way = lr * sqrt((state[1] + self.epsilon) / (squares + self.epsilon)) * gradient
        return parameter - way, (squares, self.rho * state[1] + (1 - self.rho) * way**2)


@dataclass(frozen=True)
class Normalised(UpdateRule):
    """The gradient over its norm, for each parameter: not element by element, without a reference."""

    elementwise: ClassVar[bool] = False
    claims: ClassVar[str | None] = None
    lr: float = 0.01

    def init(self, parameter: Array) -> State:
        return None

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        length = norm(gradient)
        return parameter - lr * gradient / where(length == 0, 1.0, length), None


@dataclass(frozen=True)
class NormalisedAsElements(Normalised):
    """It depends on a norm, but is declared to work element by element."""

    elementwise: ClassVar[bool] = True


class NormalisedNaNAtZero(Normalised):
    """A gradient of zeros makes the parameter NaN."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        return parameter - lr * gradient / norm(gradient), None


@dataclass(frozen=True)
class Walk(UpdateRule):
    """A trust ratio: steps in proportion to the parameter's norm, or 1 where that is zero."""

    elementwise: ClassVar[bool] = False
    claims: ClassVar[str | None] = None
    lr: float = 0.01

    def init(self, parameter: Array) -> State:
        return None

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        size, length = norm(parameter), norm(gradient)
        ratio = where((size > 0) & (length > 0), size / where(length == 0, 1.0, length), 1.0)
        return parameter - lr * ratio * gradient, None


# PyTorch's own kind.


class TorchBase(torch.optim.Optimizer):
    """Calls ``move`` for each parameter that has a gradient."""

    claims: str | None = None

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    self.move(each, each.grad, self.state[each], group)
        return loss

    def move(self, p: torch.Tensor, g: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Move a parameter."""
        raise NotImplementedError


class TorchHeavy(TorchBase):
    """SGD with momentum."""

    claims = "torch.optim.SGD"

    def __init__(self, params: Iterable[Any], lr: float = 0.01, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    def move(self, p: torch.Tensor, g: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        v = state.setdefault("velocity", torch.zeros_like(p))
        v.mul_(group["momentum"]).add_(g)
        p.sub_(group["lr"] * v)


class TorchHeavyOutside(TorchHeavy):
    """Velocities lie in an attribute that ``state_dict`` does not have."""

    def move(self, p: torch.Tensor, g: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        held: dict[Any, torch.Tensor] = self.__dict__.setdefault("held", {})
        v = held.setdefault(p, torch.zeros_like(p))
        v.mul_(group["momentum"]).add_(g)
        p.sub_(group["lr"] * v)


class TorchHeavyChangesGradient(TorchHeavy):
    """The velocity is the tensor of the first gradient, which PyTorch adds to or overwrites later."""

    def move(self, p: torch.Tensor, g: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        if "velocity" not in state:
            state["velocity"] = g
            p.sub_(group["lr"] * g)
            return
        super().move(p, g, state, group)


class TorchMoments(TorchBase):
    """AdamW."""

    claims = "torch.optim.AdamW"

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def way(self, state: dict[str, Any], group: dict[str, Any]) -> torch.Tensor:
        """The step for a rate of 1."""
        one, two = group["betas"]
        second = state["second"] / (1 - two ** state["step"])
        return state["first"] / (1 - one ** state["step"]) / (second.sqrt() + group["eps"])

    def move(self, p: torch.Tensor, g: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        one, two = group["betas"]
        state.setdefault("first", torch.zeros_like(p)).mul_(one).add_((1 - one) * g)
        state.setdefault("second", torch.zeros_like(p)).mul_(two).add_((1 - two) * g * g)
        state["step"] = state.get("step", 0) + 1
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.sub_(group["lr"] * self.way(state, group))


class TorchMomentsLerp(TorchMoments):
    """The same with PyTorch's combined operations."""

    def move(self, p: torch.Tensor, g: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        one, two = group["betas"]
        first = state.setdefault("first", torch.zeros_like(p))
        second = state.setdefault("second", torch.zeros_like(p))
        state["step"] = step = state.get("step", 0) + 1
        first.lerp_(g, 1 - one)
        second.mul_(two).addcmul_(g, g, value=1 - two)
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.addcdiv_(first, (second / (1 - two**step)).sqrt_().add_(group["eps"]), value=-group["lr"] / (1 - one**step))


class TorchMomentsGlobalStep(TorchMoments):
    """Steps are counted for all parameters together, so corrections differ between them."""

    def move(self, p: torch.Tensor, g: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        group["count"] = group.get("count", 0) + 1
        state["step"] = group["count"] - 1
        super().move(p, g, state, group)


class TorchMomentsLateDecay(TorchMoments):
    """Weight decay is applied twice."""

    def move(self, p: torch.Tensor, g: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        super().move(p, g, state, group)
        p.mul_(1 - group["lr"] * group["weight_decay"])


class TorchMomentsDefaultRate(TorchMoments):
    """The rate is read once, from the defaults, so a schedule has no effect."""

    def move(self, p: torch.Tensor, g: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        super().move(p, g, state, {**group, "lr": self.defaults["lr"]})


class TorchSigns(TorchBase):
    """signSGD, without a reference."""

    def __init__(self, params: Iterable[Any], lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr})

    def move(self, p: torch.Tensor, g: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        p.sub_(group["lr"] * torch.where(g == g, torch.sign(g), g))


class TorchSignsFlat(TorchSigns):
    """Parameters that are not contiguous are written through a copy, so they do not move."""

    def move(self, p: torch.Tensor, g: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        p.contiguous().view(-1).sub_(group["lr"] * torch.where(g == g, torch.sign(g), g).reshape(-1))


class DescentAddScaled(Descent):
    """By multiplying the gradient in place, which a rule may do."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        gradient += self.weight_decay * parameter
        gradient *= -lr
        parameter += gradient
        return parameter, state


@dataclass(frozen=True)
class DescentDecays(Descent):
    """With weight decay by default."""

    weight_decay: float = 0.1


class HeavyHistory(Heavy):
    """The velocity kept as half of it, which no rounding shows."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        parameter, velocity = super().update(parameter, gradient, 2 * state, step, lr)
        return parameter, velocity / 2


class MomentsOneState(Moments):
    """Both moments in one array, stacked along a new axis."""

    def init(self, parameter: Array) -> State:
        xp = namespace(parameter)
        return xp.stack([zeros_like(parameter), zeros_like(parameter)])

    elementwise: ClassVar[bool] = False

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        parameter, (first, second) = super().update(parameter, gradient, (state[0, ...], state[1, ...]), step, lr)
        return parameter, namespace(parameter).stack([first, second])


class SquareSumRoot(SquareSum):
    """Keeps the root of the sum, by Pythagoras."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        root = sqrt(state**2 + gradient**2)
        return parameter - lr * gradient / (root + self.epsilon), root


class SignsWhere(Signs):
    """The same with the decay first."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        parameter *= 1 - lr * self.weight_decay
        parameter -= lr * sign(state + (1 - self.beta1) * (gradient - state))
        return parameter, mix(state, gradient, 1 - self.beta2)


@dataclass(frozen=True)
class SignsDecay(Signs):
    """Lion with decay by default."""

    weight_decay: float = 0.1


@dataclass(frozen=True)
class RootMeanWide(RootMean):
    """RMSProp with other settings by default."""

    alpha: float = 0.9
    epsilon: float = 1e-6


class DeltasTwoRoots(Deltas):
    """Adadelta with two roots."""

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> Updated:
        squares = mix(copy(state[0]), gradient * gradient, 1 - self.rho)
        way = gradient * sqrt(state[1] + self.epsilon) / sqrt(squares + self.epsilon)
        return parameter - lr * way, (squares, mix(copy(state[1]), way * way, 1 - self.rho))


@dataclass(frozen=True)
class MomentsDecoupledStrong(MomentsDecoupled):
    """AdamW with more decay and other betas by default."""

    weight_decay: float = 0.3
    beta1: float = 0.8
    beta2: float = 0.95


class MomentsOtherEpsilon(Moments):
    """Adam with both numerator and denominator multiplied by a power of two."""

    def way(self, first: Array, second: Array, step: int) -> Array:
        return 4 * first / (1 - self.beta1**step) / (4 * sqrt(second / (1 - self.beta2**step)) + 4 * self.epsilon)


CASES: dict[str, Planted] = cases(
    seed=202,
    right=(
        Descent, DescentNew, DescentAddScaled, DescentDecays, Heavy, HeavyInTuple, HeavyNegative, HeavyNesterov,
        HeavyHistory, Moments, MomentsFolded, MomentsMixed, MomentsProducts, MomentsDecoupled, MomentsDecoupledStrong,
        MomentsHighest, MomentsOneState, MomentsOtherEpsilon, RootMean, RootMeanWide, SquareSum, SquareSumRoot, Signs,
        SignsWhere, SignsDecay, Deltas, DeltasTwoRoots, Normalised, Walk, TorchHeavy, TorchMoments, TorchMomentsLerp,
        TorchSigns,
    ),
    wrong={
        DescentUphill: "value",
        DescentFixedRate: "value",
        DescentLimitedRate: "value",
        DescentDropsNaN: "special-values",
        DescentStopsLate: "value",
        DescentOnlyMatrices: "value size shape",
        DescentBlocks: "size value",
        DescentFourAxes: "size shape value",
        DescentDoublesScalars: "size shape value",
        HeavyDampened: "value",
        HeavyRateInside: "value",
        HeavyLateNesterov: "value",
        HeavyKeepsGradient: "aliasing",
        HeavyUnsaved: "saving state",
        HeavyNarrow: "dtype value",
        MomentsUncorrected: "value",
        MomentsStepFromZero: "value",
        MomentsEpsilonInside: "value",
        MomentsEpsilonBefore: "value",
        MomentsCorrectionEnds: "value",
        MomentsLateGradient: "value",
        MomentsRootOfFirst: "value",
        MomentsCoupled: "value",
        MomentsDecayWithoutRate: "value",
        MomentsHighestForgets: "value",
        RootMeanStartsFull: "value",
        SquareSumNarrow: "dtype value special-values",
        SignsOneBeta: "value",
        DeltasOfSteps: "value",
        NormalisedAsElements: "value shape",
        NormalisedNaNAtZero: "special-values",
        TorchHeavyOutside: "saving",
        TorchHeavyChangesGradient: "aliasing inputs-changed",
        TorchMomentsGlobalStep: "value state",
        TorchMomentsLateDecay: "value",
        TorchMomentsDefaultRate: "value",
        TorchSignsFlat: "strides",
    },
)  # fmt: skip
