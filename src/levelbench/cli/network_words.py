"""What ``levelbench network`` measures, in which frameworks, and where its figures are written."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from levelbench.cli import options as shared
from levelbench.errors import LevelbenchError, MissingError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from levelbench.networks.native import NativeModel
    from levelbench.networks.network import Network
    from levelbench.records.network_summary import NetworkSummary
    from levelbench.records.networks import NetworkArm, NetworkCase, Setting

__all__ = ["Named", "check_figures", "framework_words", "make_arms", "make_cases", "name_network"]
__all__ += ["transform_lists", "write_figures"]


_MODELS = (".onnx", ".pb", ".json", ".onnxjson", ".textproto", ".txtpb", ".prototxt", ".pbtxt", ".onnxtxt", ".onnxtext")


@dataclass(frozen=True)
class Named:
    """What a word names: a network or a native model, loaded once to check it, and the fields of its cases."""

    name: str
    kind: Literal["zoo", "file", "native"]
    path: str
    digest: str
    options: Mapping[str, Setting]
    network: Network | None
    native: NativeModel | None

    @property
    def source(self) -> Network | NativeModel:
        """The one of both that is there; it describes the inputs."""
        found = self.native if self.network is None else self.network
        assert found is not None
        return found


def name_network(word: str, options: Sequence[str]) -> Named:
    """The network that ``word`` names in the zoo, in an ONNX file or as ``FILE.py:function``.

    Raises ``UnknownNameError`` for a name that is not in the zoo, ``MissingError`` for a missing file, ``UsageError``
    for a folder, and ``DefinitionError`` for a file that is not a model.
    """
    from levelbench.networks import zoo

    settings = read_options(options)
    path = Path(word)
    if ".py:" in word:
        from levelbench.networks.native import load_native

        model = load_native(word, settings)
        return Named(model.name, "native", word, _digest(Path(word.rpartition(":")[0])), settings, None, model)
    if path.suffix == ".py":
        raise UsageError(
            f"network {word}", "it does not say which function of the Python file builds the model", f"{word}:build"
        )
    if path.is_dir():
        raise UsageError(f"network {word}", "it is a folder", "give a model in it, such as folder/model.onnx")
    if word not in zoo.names() and (path.suffix in _MODELS or path.exists() or path.parent != Path()):
        from levelbench.networks.files import load

        if settings:
            raise UsageError(
                "--option with a file",
                "a model in a file has no options",
                "leave --option out; it is for networks that are built by name",
            )
        network = load(path)
        return Named(path.stem, "file", word, _digest(path), {}, network, None)
    return Named(word, "zoo", "", "", settings, zoo.build(word, **settings), None)


def _digest(path: Path) -> str:
    from levelbench.networks.benchmark.cases import digest_of

    return digest_of(path)


def read_options(words: Sequence[str]) -> dict[str, Setting]:
    """Options such as ``classes=10``: integers, numbers, true or false where they look like it, else text."""
    found: dict[str, Setting] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not name or not equals:
            raise UsageError(f"--option {word}", "it is not NAME=VALUE", "write it like --option classes=10")
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


def make_cases(
    named: Named,
    batches: str | None,
    sizes: Sequence[str],
    shapes: Sequence[str],
    trial_s: float | None = None,
) -> list[NetworkCase]:
    """One case per batch, with its sizes bound; refused if an input's shape would stay open or is impossible.

    So is a file that would take all memory, or that loops for more than ``trial_s`` seconds of processor time.
    """
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
        raise UsageError(f"--batch {batches}", f"--shape says {batch}", "give one of them")
    if named.network is not None:
        from levelbench.networks.shapes import usual_sizes

        bound |= usual_sizes(named.network, bound, wanted[0])
    cases = []
    for each in wanted:
        case = NetworkCase(named.name, named.kind, each, bound, dict(named.options), named.path, named.digest)
        for value in named.source.inputs:
            bound_shape(value, each, {**named.source.sizes, **bound})
        if named.network is not None:
            refuse_fixed_batch(named.network, case)
        cases.append(case)
    if named.network is not None and named.kind == "file":
        from levelbench.networks.trial import refuse_bombs

        refuse_bombs(named.network, named.path, max(wanted), bound, limit_s=trial_s)
    return cases


def _fixed_batch(named: Named) -> int | None:
    """The first size of all inputs if it is the same number in each; ``None`` if one leaves it open."""
    firsts = {each.shape[0] if each.shape else None for each in named.source.inputs}
    first = firsts.pop() if len(firsts) == 1 else None
    return first if isinstance(first, int) else None


def _batches(text: str) -> list[int]:
    words = [each.strip() for each in text.split(",") if each.strip()]
    if not words or not all(each.isdecimal() for each in words):
        raise UsageError(f"--batch {text}", "it is not a list of numbers", "write it like --batch 1,8,32")
    found = list(dict.fromkeys(map(int, words)))
    if 0 in found:
        raise UsageError("--batch 0", "a batch needs at least one sample", "give 1 or more")
    return found


def _sizes(named: Named, words: Sequence[str]) -> dict[str, int]:
    """Arguments such as ``length=128``: the name of an open size and its value."""
    known = _open_sizes(named)
    found: dict[str, int] = {}
    for word in words:
        name, _, text = word.partition("=")
        if not name or not text.isdecimal() or not int(text):
            raise UsageError(f"--size {word}", "it is not NAME=NUMBER", "write it like --size length=128")
        if name == "batch":
            raise UsageError(f"--size {word}", "the batch has its own option", f"--batch {text}")
        if name not in known:
            raise UnknownNameError(f"open size of {named.name}", name, known)
        found[name] = int(text)
    return found


def _open_sizes(named: Named) -> list[str]:
    shapes = [each.shape or () for each in named.source.inputs]
    return list(dict.fromkeys(size for shape in shapes for size in shape if isinstance(size, str) and size != "batch"))


def _of_shapes(named: Named, words: Sequence[str]) -> tuple[dict[str, int], int | None]:
    """The open sizes and the batch that shapes such as ``input=1x3x64x64`` bind."""
    from levelbench.networks.values import batch_axis

    inputs = {each.name: each for each in named.source.inputs}
    found: dict[str, int] = {}
    batch = None
    for word in words:
        name, _, text = word.partition("=")
        if name not in inputs:
            raise UnknownNameError(f"input of {named.name}", name, inputs)
        if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text):
            raise UsageError(f"--shape {word}", "it is not a shape", f"write it like --shape {name}=1x3x64x64")
        given, declared = [int(each) for each in text.split("x")], inputs[name].shape
        if declared is None:
            raise UsageError(f"--shape {word}", "the model leaves the rank open", "export it with named sizes")
        if len(given) != len(declared):
            raise UsageError(
                f"--shape {word}", f"the input has {len(declared)} axes", f"write it like {_like(declared)}"
            )
        for axis, (size, one) in enumerate(zip(declared, given, strict=True)):
            if isinstance(size, int) and size != one:
                raise UsageError(
                    f"--shape {word}", f"axis {axis} is fixed at {size}", f"write it like {_like(declared)}"
                )
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


_PREFERRED = ("torch", "jax", "onnxruntime")


def make_arms(
    named: Named, frameworks: str | None, device: str, lists: Sequence[tuple[str, ...]], trains: bool
) -> list[NetworkArm]:
    """The arms: each framework without a transform, then once for each list of transforms."""
    from levelbench.records.networks import NetworkArm

    words = framework_words(frameworks, device, trains) if named.native is None else _native_words(named, frameworks)
    return [NetworkArm(framework, mode, device, transforms) for framework, mode in words for transforms in ((), *lists)]


def _native_words(named: Named, words: str | None) -> list[tuple[str, str]]:
    """A native model runs in its own framework, in one mode or several."""
    assert named.native is not None
    own = named.native.framework
    found = [(own, "")] if words is None else _split(words)
    for framework, mode in found:
        if framework != own:
            raise UsageError(
                f"{named.name} on {framework}", f"it is a model of {own}", f"give --framework {own}, or leave it out"
            )
        _check_mode(framework, mode)
    return found


def framework_words(words: str | None, device: str, trains: bool = False) -> list[tuple[str, str]]:
    """Framework and mode (empty for the default) of ``torch:compiled,jax``; if nothing is named, all that run there."""
    from levelbench import plugins
    from levelbench.operators.frameworks import load_framework

    if words is not None:
        found = _split(words)
        for framework, mode in found:
            load_framework(framework)
            _check_mode(framework, mode)
        return found
    known = plugins.names("framework")
    able = [name for name in _PREFERRED if name in known and load_framework(name).lacks(device) is None]
    able = [name for name in able if load_framework(name).trains or not trains]
    if not able and device == "cpu":
        able = ["numpy"]
    if not able:
        raise MissingError(f"a framework on {device!r}", "none can run there", "levelbench list shows what runs")
    return [(name, "") for name in able]


def _split(words: str) -> list[tuple[str, str]]:
    parts = [each.strip().partition(":") for each in words.split(",") if each.strip()]
    if not parts:
        raise UsageError("--framework", "it names no framework", "give at least one: --framework torch:compiled")
    return list(dict.fromkeys((framework, mode) for framework, _, mode in parts))


def _check_mode(framework: str, mode: str) -> None:
    """Refuse a mode that the framework does not have."""
    if not mode:
        return
    from levelbench.operators.frameworks import load_framework

    known = load_framework(framework).modes
    if mode not in known:
        raise UnknownNameError(f"mode of {framework}", mode, known)


def transform_lists(words: Sequence[str], memory: str | None) -> list[tuple[str, ...]]:
    """The lists of transforms to measure next to the original network: one, or one for each memory limit.

    ``words`` are names separated by commas, with an optional setting after a colon: ``precision:bfloat16``. ``memory``
    lists limits for micro-batching, such as ``1GiB,2GiB``.
    """
    from levelbench.networks import transforms

    given = [each.strip() for word in words for each in word.split(",") if each.strip()]
    if not given:
        if memory is not None:
            raise UsageError(f"--memory {memory}", "no transform uses a memory limit", "add --transform microbatch")
        return []
    known = transforms.names()
    for word in given:
        if (name := word.partition(":")[0]) not in known:
            raise UnknownNameError("transform", name, known, "see levelbench list transforms")
    if memory is None:
        if "microbatch" in given:
            raise UsageError("--transform microbatch", "it has no memory limit", "give one: --memory 2GiB")
        return [tuple(given)]
    if "microbatch" not in given:
        raise UsageError(f"--memory {memory}", "no transform uses a memory limit", "add --transform microbatch")
    limits = [_bytes_of(each) for each in memory.split(",")]
    return [
        tuple(f"microbatch;memory={limit}" if each == "microbatch" else each for each in given)
        for limit in dict.fromkeys(limits)
    ]


def _bytes_of(text: str) -> int:
    from levelbench.networks.transforms.microbatch import parse_bytes

    amount = parse_bytes(text)
    if amount < 1:
        raise UsageError(f"--memory {text}", "a limit must be above zero", "write it like 2GiB")
    return amount


_ENDINGS = (".svg", ".png")


def check_figures(place: Path | None) -> None:
    """Refuse a place for figures that is neither a folder nor a figure's name, or that cannot be written to."""
    if place is None:
        return
    if place.is_dir() or not place.suffix:
        shared.check_writable(place / "figure.svg")
        return
    if place.suffix.lower() not in _ENDINGS:
        found = "its ending is neither .svg nor .png"
        raise UsageError(f"--plot {place}", found, "end it in .svg or .png, or name a folder")
    shared.check_writable(place)


def write_figures(summary: NetworkSummary, store: Path, place: Path | None) -> dict[str, str]:
    """The paths of the figures by name, and why one was not drawn."""
    from levelbench.report.network_figures import write_breakdown, write_latency, write_memory_curve

    writers: dict[str, Callable[[NetworkSummary, Path], Path]] = {
        "breakdown": write_breakdown,
        "latency": write_latency,
    }
    if any(arm.transforms for arm in summary.arms):
        writers["memory"] = write_memory_curve
    written = {}
    for kind, write in writers.items():
        try:
            written[kind] = str(write(summary, _figure_path(summary, kind, store, place)))
        except LevelbenchError as error:
            # The results have been shown; a missing matplotlib is reported if a figure was requested.
            if place is not None and not isinstance(error, UsageError):
                raise
            written[f"no_{kind}"] = error.found
    return written


def _figure_path(summary: NetworkSummary, kind: str, store: Path, place: Path | None) -> Path:
    """The path of a figure: under a descriptive name next to the records, else as ``place`` says."""
    from levelbench.report.networks import file_name

    if place is not None and place.suffix.lower() in _ENDINGS and not place.is_dir():
        return place.with_name(f"{place.stem}-{kind}{place.suffix}")
    if place is not None:
        return place / f"{file_name(summary)}-{summary.direction}-{kind}.svg"
    shown = [*(case.title for case, _ in summary.rows), *(arm.title for arm in summary.arms)]
    digest = zlib.crc32("\n".join(shown).encode())
    return store / "networks" / f"{file_name(summary)}-{summary.direction}-{kind}-{digest:08x}.svg"
