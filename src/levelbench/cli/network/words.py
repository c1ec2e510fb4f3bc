"""What the words of ``levelbench network`` mean: which network, at which batches and sizes, on which arms.

Whatever cannot be meant is found here, before anything is measured, and the answer names what would do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from levelbench.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from levelbench.networks.native import NativeModel
    from levelbench.networks.network import Network
    from levelbench.records.networks import NetworkCase, Setting

__all__ = ["Named", "make_cases", "name_network"]

_MODELS = (".onnx", ".pb", ".json", ".onnxjson", ".textproto", ".txtpb", ".prototxt", ".pbtxt", ".onnxtxt", ".onnxtext")


@dataclass(frozen=True)
class Named:
    """What a word names: a network or a native model, loaded once to see that it is whole, and the case's fields."""

    name: str
    kind: Literal["zoo", "file", "native"]
    path: str
    digest: str
    options: Mapping[str, Setting]
    network: Network | None
    native: NativeModel | None

    @property
    def source(self) -> Network | NativeModel:
        """Whichever it is: what says which inputs there are."""
        found = self.native if self.network is None else self.network
        assert found is not None
        return found


def name_network(word: str, options: Sequence[str]) -> Named:
    """The network of the zoo, of an ONNX file or of ``FILE.py:function`` that ``word`` names.

    Raises ``UnknownNameError`` for a name that the zoo has not, ``MissingError`` for a file that is not there,
    ``UsageError`` for a folder, and ``DefinitionError`` for a file that is no model.
    """
    from levelbench.networks import zoo

    settings = _settings(options)
    path = Path(word)
    if ".py:" in word:
        from levelbench.networks.native import load_native

        model = load_native(word, settings)
        return Named(model.name, "native", word, _digest(Path(word.rpartition(":")[0])), settings, None, model)
    if path.suffix == ".py":
        raise UsageError(f"network {word}", "a Python file has to say which function makes the model", f"{word}:build")
    if path.is_dir():
        raise UsageError(f"network {word}", "it is a folder", "give a model in it, as in folder/model.onnx")
    if word not in zoo.names() and (path.suffix in _MODELS or path.exists() or path.parent != Path()):
        from levelbench.networks.files import load

        if settings:
            raise UsageError("--option with a file", "a model is what it is", "options are for what is built by name")
        network = load(path)
        return Named(path.stem, "file", word, _digest(path), {}, network, None)
    return Named(word, "zoo", "", "", settings, zoo.build(word, **settings), None)


def _digest(path: Path) -> str:
    from levelbench.networks.benchmark.cases import digest_of

    return digest_of(path)


def _settings(words: Sequence[str]) -> dict[str, Setting]:
    """``classes=10`` and the like: integers, numbers and yes or no where they look like it, else text."""
    found: dict[str, Setting] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not name or not equals:
            raise UsageError(f"--option {word}", "it is not NAME=VALUE", "write it as in --option classes=10")
        found[name] = _setting(text)
    return found


def _setting(text: str) -> Setting:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def make_cases(named: Named, batches: str | None, sizes: Sequence[str], shapes: Sequence[str]) -> list[NetworkCase]:
    """A case a batch, with its sizes bound; refused where an input's shape would stay open, or cannot be meant."""
    from levelbench.networks.benchmark.cases import refuse_fixed_batch
    from levelbench.networks.values import bound_shape
    from levelbench.records.networks import NetworkCase

    from_shapes, batch = _of_shapes(named, shapes)
    bound = _sizes(named, sizes) | from_shapes
    fixed = _fixed_batch(named)
    wanted = [batch or fixed or 1] if batches is None else _batches(batches)
    if fixed is not None and wanted != [fixed]:
        raise UsageError(f"--batch {batches}", f"the model's batch is fixed at {fixed}", "leave --batch out")
    if batch is not None and wanted != [batch]:
        raise UsageError(f"--batch {batches}", f"--shape says {batch}", "give one of both")
    cases = []
    for each in wanted:
        case = NetworkCase(named.name, named.kind, each, bound, dict(named.options), named.path, named.digest)
        for value in named.source.inputs:
            bound_shape(value, each, {**named.source.sizes, **bound})
        if named.network is not None:
            refuse_fixed_batch(named.network, case)
        cases.append(case)
    return cases


def _fixed_batch(named: Named) -> int | None:
    """The first size of all inputs, where it is the same number in each; ``None`` where one leaves it open."""
    firsts = {each.shape[0] if each.shape else None for each in named.source.inputs}
    first = firsts.pop() if len(firsts) == 1 else None
    return first if isinstance(first, int) else None


def _batches(text: str) -> list[int]:
    words = [each.strip() for each in text.split(",") if each.strip()]
    if not words or not all(each.isdecimal() for each in words):
        raise UsageError(f"--batch {text}", "it is no list of numbers", "as in --batch 1,8,32")
    found = list(dict.fromkeys(map(int, words)))
    if 0 in found:
        raise UsageError("--batch 0", "that is no sample at all", "give 1 or more")
    return found


def _sizes(named: Named, words: Sequence[str]) -> dict[str, int]:
    """``length=128`` and the like: the name of an open size, and what it is to be."""
    known = _open_sizes(named)
    found: dict[str, int] = {}
    for word in words:
        name, _, text = word.partition("=")
        if not name or not text.isdecimal() or not int(text):
            raise UsageError(f"--size {word}", "it is not NAME=NUMBER", "write it as in --size length=128")
        if name == "batch":
            raise UsageError(f"--size {word}", "the batch has an option of its own", f"--batch {text}")
        if name not in known:
            raise UnknownNameError(f"open size of {named.name}", name, known)
        found[name] = int(text)
    return found


def _open_sizes(named: Named) -> list[str]:
    shapes = [each.shape or () for each in named.source.inputs]
    return list(dict.fromkeys(size for shape in shapes for size in shape if isinstance(size, str) and size != "batch"))


def _of_shapes(named: Named, words: Sequence[str]) -> tuple[dict[str, int], int | None]:
    """The open sizes, and the batch, that shapes such as ``input=1x3x64x64`` bind."""
    from levelbench.networks.benchmark.cases import batch_axis

    inputs = {each.name: each for each in named.source.inputs}
    found: dict[str, int] = {}
    batch = None
    for word in words:
        name, _, text = word.partition("=")
        if name not in inputs:
            raise UnknownNameError(f"input of {named.name}", name, inputs)
        if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text):
            raise UsageError(f"--shape {word}", "it is no shape", f"write it as in --shape {name}=1x3x64x64")
        given, declared = [int(each) for each in text.split("x")], inputs[name].shape
        if declared is None:
            raise UsageError(f"--shape {word}", "the model leaves even the rank open", "export it with named sizes")
        if len(given) != len(declared):
            raise UsageError(f"--shape {word}", f"the input has {len(declared)} axes", f"as in {_like(declared)}")
        for axis, (size, one) in enumerate(zip(declared, given, strict=True)):
            if isinstance(size, int) and size != one:
                raise UsageError(f"--shape {word}", f"axis {axis} is fixed at {size}", f"as in {_like(declared)}")
            if axis == batch_axis(inputs[name], {}):
                batch = one
            elif isinstance(size, str):
                found[size] = one
            elif size is None:
                do = "export it with a name for each open size"
                raise UsageError(f"--shape {word}", f"the model gives axis {axis} neither a size nor a name", do)
    return found, batch


def _like(shape: Sequence[int | str | None]) -> str:
    return "x".join("?" if size is None else str(size) for size in shape)
