"""PyTorch's modules and optimizers, seen from outside, for a run that is told its phases.

A forward hook becomes part of what ``torch.compile`` and ``torch.jit.script`` make of a module, and fails there. So a
forward pass is seen one step further out: in the place where ``Module.compile`` leaves what is called instead of a
module's ``forward``, which neither graphs nor copies of the module have.
"""

from __future__ import annotations

import gc
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, final

from levelbench.errors import UsageError
from levelbench.experiments.marking import MarkedRun
from levelbench.measure.timeline import Phase

__all__ = ["hook_compiler", "hook_phases"]

_CALL: Final = "_compiled_call_impl"

_IGNORED = "__jit_ignored_attributes__"
"""Attributes of a module that ``torch.jit.script`` does not translate."""

_MOST_OUTPUTS = 8


def hook_phases(run: MarkedRun, model: Any, optimizer: Any) -> list[Any]:
    """The handles of the hooks that :meth:`TrackedRun.autophase` describes, with one optimizer or none."""
    if not hasattr(model, "register_forward_pre_hook"):
        raise UsageError("autophase", f"{type(model).__name__} is no torch.nn.Module", "give the root module")
    # That of accelerate wraps the one that steps, and has no hooks of its own.
    optimizer = (
        optimizer if hasattr(optimizer, "_optimizer_step_pre_hooks") else getattr(optimizer, "optimizer", optimizer)
    )
    closure = inspect.signature(type(optimizer).step).parameters.get("closure") if hasattr(optimizer, "step") else None
    if closure is not None and closure.default is closure.empty:
        found = f"{type(optimizer).__name__}'s step has forward and backward passes in it"
        raise UsageError("autophase", found, "leave the optimizer out, or name phases: run.phase(...)")
    if optimizer is not None and not hasattr(optimizer, "register_step_pre_hook"):
        found = f"{type(optimizer).__name__} is no torch.optim optimizer"
        raise UsageError("autophase", found, "leave it out, and name its phase: run.phase('update')")
    hooks: list[Any] = []
    # A second optimizer of the same module, or a second epoch, needs no second hook.
    passes = run.hooked.get(id(model))
    if passes is None:
        passes = run.hooked[id(model)] = _Passes(run, model)
        hooks.append(passes)
    if optimizer is not None and id(optimizer) not in run.hooked:
        steps = run.hooked[id(optimizer)] = _Steps(run, passes, optimizer)
        hooks.append(steps)
    return hooks


def hook_compiler(run: MarkedRun) -> list[Any]:
    """The handle of the hook on ``torch.compile``, once."""
    compiler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
    if not hasattr(compiler, "register_start_callback") or id(compiler) in run.hooked:
        return []
    run.hooked[id(compiler)] = _Compilations(run, compiler)
    return [run.hooked[id(compiler)]]


@final
class _Passes:
    """The forward passes of a module: what follows one with gradients is its backward pass."""

    def __init__(self, run: MarkedRun, model: Any) -> None:
        torch = sys.modules["torch"]
        self._run, self.model = run, model
        self._grad_enabled, self.is_compiling = torch.is_grad_enabled, torch.compiler.is_compiling
        self.owner = run._thread or threading.get_ident()
        self._back: int = Phase.OTHER
        self.inside = self.trains = self._learns = False
        """``trains``: whether a backward pass has followed one."""
        self._looks = self._trains_in_evaluation_mode = False
        """``_looks``: whether one with gradients, in evaluation mode, is taken for an evaluation."""
        self.looked = False
        """Whether there was such a one since the step before."""
        self.waits: bool | None = None
        """Whether one with gradients has had no step since; ``None`` without an optimizer."""
        self.count = 0
        """How many had gradients."""
        self.calls = torch.nn.Module._wrapped_call_impl.__code__
        """What calls a :class:`_Call`, with the module as ``self``."""
        self._calls: list[_Call] = []
        self._searched = False
        run.tell_missing(self)
        self._take_place(model)

    def _take_place(self, module: Any) -> None:
        call = _Call(self, module, module.__dict__.get(_CALL))
        # A compiled module would give the attribute to the one in it.
        module.__dict__[_CALL] = call
        module.__dict__[_IGNORED] = [*getattr(module, _IGNORED, []), _CALL]
        self._calls.append(call)

    def find_compiled(self) -> None:
        """Look, once, for what was compiled of the module since, as the loop does not call the module itself."""
        if self._searched:
            return
        self._searched = True
        if not isinstance(self.model.__dict__.get(_CALL), _Call):
            self._take_place(self.model)
        kind = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", None)
        for each in gc.get_objects() if kind is not None else ():
            if type(each) is kind and each._orig_mod is self.model and _CALL not in each.__dict__:
                self._take_place(each)

    def begin(self) -> None:
        """A pass begins, in the run's own thread."""
        run = self._run
        run._begin_work()
        self.inside, self._back = True, run._phase
        self._learns = self._grad_enabled()
        if self._learns and not (self.model.training or self._trains_in_evaluation_mode):
            self._learns, self._looks = False, True
        if run._phase != Phase.EVALUATE:
            run._switch(Phase.FORWARD if self._learns or self._is_of_training() else Phase.EVALUATE)

    def _is_of_training(self) -> bool:
        """Whether a pass without gradients is part of a step, as that of a teacher, and not an evaluation."""
        in_batch = self._run.in_batch
        return bool(self.model.training and (self.waits if in_batch is None else in_batch))

    def end(self, found: object) -> None:
        """It has returned what it ``found``."""
        run, self.inside = self._run, False
        run.tell_found(self)
        if self._looks:
            self._looks, self.looked = False, True
            for node in list(_nodes(found, 2))[:_MOST_OUTPUTS]:
                node.register_prehook(self._learn_in_evaluation_mode)
        if run._phase != Phase.FORWARD or not self._learns:
            run._switch(self._back)
            return
        self.count += 1
        self.waits = None if self.waits is None else True
        if not self.trains and (nodes := list(_nodes(found, 2))):
            # The first may only be to see shapes. What the output's gradient is asked for tells a backward pass.
            run._switch(self._back)
            for node in nodes[:_MOST_OUTPUTS]:
                node.register_prehook(self._begin_backward)
        else:
            run._switch(Phase.BACKWARD)

    def fail(self) -> None:
        """It has raised an exception."""
        self.inside = self._looks = False
        self._run._switch(self._back)

    def learn_in_evaluation_mode(self) -> None:
        """A backward pass or a step has followed one in evaluation mode: such passes are no evaluations here."""
        if not self._trains_in_evaluation_mode:
            self._trains_in_evaluation_mode = True
            self.count += 1
            self.waits = None if self.waits is None else True

    def _learn_in_evaluation_mode(self, *_: object) -> None:
        self.learn_in_evaluation_mode()
        if self._run._phase != Phase.EVALUATE:
            self._begin_backward()

    def _begin_backward(self, *_: object) -> None:
        # On a CUDA device it comes in another thread.
        if not self.trains and threading.get_ident() == self.owner and self._run._phase == self._back:
            self._run._switch(Phase.BACKWARD)
        self.trains = True

    def remove(self) -> None:
        """No more passes are told."""
        for each in self._calls:
            each.remove()


@final
class _Call:
    """What PyTorch calls in place of a module's forward pass with its hooks, or of what was compiled of them.

    Copies of the module, and what is saved of it, have none.
    """

    __slots__ = ("_compiled", "_module", "_passes")

    def __init__(self, passes: _Passes, module: Any, compiled: Callable[..., Any] | None) -> None:
        self._passes, self._module, self._compiled = passes, module, compiled

    def __call__(self, *given: Any, **named: Any) -> Any:
        passes, module = self._passes, self._module
        # Within a graph there is nothing to tell.
        if passes.is_compiling():
            return (self._compiled or module._call_impl)(*given, **named)
        # What was scripted of the module, a replica of DataParallel and a shallow copy have its attributes.
        frame = sys._getframe(1)
        caller = frame.f_locals["self"] if frame.f_code is passes.calls else module
        call = self._compiled if self._compiled is not None and caller is module else caller._call_impl
        is_copy = caller is not module and type(caller) is type(module)
        if is_copy or passes.inside or threading.get_ident() != passes.owner:
            return call(*given, **named)
        passes.begin()
        try:
            found = call(*given, **named)
        except BaseException:
            passes.fail()
            raise
        passes.end(found)
        return found

    def __reduce__(self) -> Any:
        return type(None), ()

    def remove(self) -> None:
        """The module is called as before."""
        own = self._module.__dict__
        if own.get(_CALL) is self:
            own[_CALL] = self._compiled
        own[_IGNORED] = [each for each in own.get(_IGNORED, []) if each != _CALL]


def _nodes(found: object, depth: int) -> Iterator[Any]:
    """The nodes of the autograd graph that outputs of a module come from."""
    node = getattr(found, "grad_fn", None)
    if hasattr(node, "register_prehook"):
        yield node
    elif depth and isinstance(found, Mapping | list | tuple):
        for each in found.values() if isinstance(found, Mapping) else found:
            yield from _nodes(each, depth - 1)


@final
class _Steps:
    """The steps of an optimizer, which are the phase ``update``."""

    def __init__(self, run: MarkedRun, passes: _Passes, optimizer: Any) -> None:
        self._run, self._passes, self.optimizer = run, passes, optimizer
        self._counted, passes.waits = -1, bool(passes.waits)
        run.tell_missing(self)
        self._handles = [
            optimizer.register_step_pre_hook(_Hook(self._begin)),
            optimizer.register_step_post_hook(_Hook(self._end)),
        ]

    def _begin(self, _: object, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        run, passes = self._run, self._passes
        if passes.is_compiling() or threading.get_ident() != passes.owner:
            return None
        run._begin_work()
        closure = given[1] if len(given) > 1 else named.get("closure")
        if closure is None:
            self._look_for_pass()
        run._switch(Phase.UPDATE)
        passes.trains, passes.waits = True, False
        if closure is None:
            return None

        def passes_again() -> Any:
            # It has forward and backward passes in it, before the update.
            try:
                return closure()
            finally:
                run._switch(Phase.UPDATE)

        if len(given) > 1:
            return (given[0], passes_again, *given[2:]), named
        return given, {**named, "closure": passes_again}

    def _look_for_pass(self) -> None:
        """Whether a forward pass was seen since the step before; before the first one it may have come too early."""
        run, passes = self._run, self._passes
        if passes.count == max(self._counted, 0) and passes.looked:
            passes.learn_in_evaluation_mode()
        passes.looked = False
        if passes.count == max(self._counted, 0):
            passes.find_compiled()
        if passes.count == self._counted:
            run.tell_missing(self)
        else:
            run.tell_found(self)
        self._counted = passes.count

    def _end(self, *_: object) -> None:
        passes = self._passes
        if not passes.is_compiling() and threading.get_ident() == passes.owner:
            self._run._switch(Phase.OTHER)

    def remove(self) -> None:
        """No more steps are told."""
        for each in self._handles:
            each.remove()


@final
class _Compilations:
    """What ``torch.compile`` compiles while the program runs, within a forward or backward pass: phase ``compile``."""

    def __init__(self, run: MarkedRun, compiler: Any) -> None:
        self._run, self._compiler = run, compiler
        self._owner = run._thread or threading.get_ident()
        self._back: int | None = None
        compiler.register_start_callback(self._begin)
        compiler.register_end_callback(self._end)

    def _begin(self, *_: object) -> None:
        if threading.get_ident() == self._owner:
            self._back = self._run._phase
            self._run._switch(Phase.COMPILE)

    def _end(self, *_: object) -> None:
        if self._back is not None and threading.get_ident() == self._owner:
            self._run._switch(self._back)
            self._back = None

    def remove(self) -> None:
        """No more compilations are told; ``torch._dynamo.reset`` has removed these hooks already."""
        with suppress(ValueError):
            self._compiler.remove_start_callback(self._begin)
            self._compiler.remove_end_callback(self._end)


class _Hook:
    """A hook that copies of its optimizer, and what is saved of it, do not have."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *given: Any) -> Any:
        return self._call(*given)

    def __reduce__(self) -> Any:
        return _Hook, (_nothing,)


def _nothing(*_: object) -> None:
    pass
