"""``levelbench check WHAT --is NAME``: whether a model is the network of the zoo that it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from levelbench.cli.findings import finish, open_frameworks
from levelbench.errors import UsageError

__all__ = ["LikenessWords", "check_likeness"]


@dataclass(frozen=True)
class LikenessWords:
    """The options of a comparison with a reference. ``options`` are those of the reference: ``classes=10``."""

    reference: str
    options: tuple[str, ...]
    draws: int
    seed: int


def check_likeness(what: str, words: LikenessWords, as_json: bool) -> int:
    """Compare a model with a network of the zoo; returns 0 if it is the same, 1 if not, 4 if that cannot be told."""
    from levelbench.cli.network_words import read_options
    from levelbench.networks import zoo
    from levelbench.networks.executor import Backend
    from levelbench.networks.probes.likeness import compare_with
    from levelbench.operators.frameworks import open_framework

    reference = zoo.build(words.reference, **read_options(words.options))
    open_frameworks("torch", "cpu")
    backend = open_framework("torch")
    assert isinstance(backend, Backend)
    found = compare_with(reference, what, _builder(what), backend, draws=words.draws, seed=words.seed)
    details = {"reference": words.reference, "sizes": found.sizes, "pairs": list(found.pairs)}
    verdict = {True: f", so it is not {words.reference}", False: f": it is {words.reference}"}
    note = verdict[bool(found.report.failed)] if found.report.judged else ""
    return finish([found.report], as_json, [details], [note])


def _builder(what: str) -> Callable[[], Any]:
    """What makes the model that is named: a function in a .py file (``build`` by default), a file, or a zoo's name."""
    from levelbench.networks import zoo
    from levelbench.networks.files import load
    from levelbench.networks.native import load_builder

    if Path(what).suffix == ".py":
        return load_builder(f"{what}:build")
    if ".py:" in what:
        return load_builder(what)
    if Path(what).suffix:
        if not Path(what).is_file():
            raise UsageError(f"check {what}", "there is no such file", "give a .onnx file, or FILE.py:function")
        return lambda: load(Path(what))
    zoo.entry(what)
    return lambda: zoo.build(what)
