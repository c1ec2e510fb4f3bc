"""Checks the optimizers of a file, each in its own process, so that a crash or a hang is just a finding.

An optimizer that factors its matrices may hang for good on a gradient that is not finite: the singular value
decompositions of some builds of OpenBLAS do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from inspect import signature
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np

from levelbench import plugins
from levelbench.checks.isolation import JsonLine, Say, report_isolated
from levelbench.errors import DefinitionError
from levelbench.training.optimizers.base import Optimizer, UpdateRule
from levelbench.training.optimizers.wrappers import Native, is_torch_optimizer
from levelbench.training.probes.optimizer_references import USUAL_RATE, named_optimizer
from levelbench.training.probes.optimizer_runs import Divergence
from levelbench.training.probes.optimizers import Checked, check_optimizer


def load_optimizers(path: Path) -> tuple[dict[str, Optimizer], str | Optimizer | None]:
    """The optimizers of a file by name, and its ``reference``.

    These are ``optimizer`` if the file defines it, which may be PyTorch's or optax's (see ``Native.of``); else every
    optimizer that it creates; else its own subclasses of ``UpdateRule`` or ``torch.optim.Optimizer`` with their
    defaults (and a rate of 0.01 if ``lr`` has none). The file is run. Raises ``UsageError`` if it does not exist,
    ``DefinitionError`` if it raises (naming the line) or defines none.
    """
    module = plugins.load_file("optimizer", path)
    reference = getattr(module, "reference", None)
    if reference is not None and not isinstance(reference, str | Optimizer):
        raise DefinitionError(
            f"`reference` of {path}", f"it is of type {type(reference).__name__}", "give a name or an optimizer"
        )
    given = getattr(module, "optimizer", None)
    if given is not None and not isinstance(given, Optimizer):
        return {"optimizer": Native.of(given)}, reference
    torchs: dict[str, Optimizer] = {
        name: Native.of(each if "lr" in _defaults(each) else partial(each, lr=USUAL_RATE))
        for name, each in vars(module).items()
        if isinstance(each, type) and each.__module__ == module.__name__ and is_torch_optimizer(each)
    }
    if given is not None:
        torchs = {}
    rules: dict[str, Optimizer] = {}
    if not torchs or any(_is_own(each, module) for each in vars(module).values()):
        rules = plugins.defined_in(module, path, "optimizer", Optimizer, UpdateRule, {"lr": USUAL_RATE})
    return {**rules, **torchs}, reference


def _is_own(value: object, module: ModuleType) -> bool:
    """Whether it is an optimizer, or a rule that the module defines."""
    if isinstance(value, type):
        return issubclass(value, UpdateRule) and value.__module__ == module.__name__
    return isinstance(value, Optimizer)


def _defaults(kind: type) -> set[str]:
    """The arguments of a class that have a default."""
    return {name for name, each in signature(kind).parameters.items() if each.default is not each.empty}


def check_isolated(
    path: Path | None,
    name: str,
    reference: str = "",
    *,
    settings: Mapping[str, Any] = MappingProxyType({}),
    frameworks: Sequence[str] = ("numpy",),
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
    timeout_s: float = 300.0,
) -> Checked:
    """Check the optimizer ``name`` of a file in its own process, which is killed after ``timeout_s`` seconds.

    ``path`` is ``None`` for one of ours or of a framework, with these ``settings``. The other arguments are those of
    :func:`~levelbench.training.probes.optimizers.check_optimizer`, without a ``reference`` the file's own. If the
    process dies or hangs, that is a failure of the optimizer.
    """
    request = {
        "path": "" if path is None else str(path),
        "name": name,
        "settings": dict(settings),
        "reference": reference,
        "frameworks": list(frameworks),
        "seed": seed,
    }
    report, last = report_isolated(f"{__name__}:check_request", request, name, tell=tell, timeout_s=timeout_s)
    return Checked(report, tuple(_divergence(each) for each in last.get("divergences", ())))


def check_request(request: JsonLine, say: Say) -> None:
    """The part of :func:`check_isolated` that runs in the other process."""
    if request["path"]:
        found, named = load_optimizers(Path(request["path"]))
        optimizer = found[request["name"]]
        named = found.get(request["reference"], named)
    else:
        found, named = {}, None
        optimizer = named_optimizer(request["name"], request["settings"])
    checked = check_optimizer(
        optimizer,
        named if request["reference"] in found else request["reference"] or named,
        frameworks=request["frameworks"],
        seed=request["seed"],
        name=request["name"],
        tell=lambda probe: say({"started": probe}),
        hear=lambda finding: say({"finding": asdict(finding)}),
    )
    divergences = [each.to_dict() for each in checked.divergences]
    say({"done": [asdict(each) for each in checked.report.findings], "divergences": divergences})


def _divergence(line: JsonLine) -> Divergence:
    return Divergence(**{**line, "l2": np.array(line["l2"]), "linf": np.array(line["linf"])})
