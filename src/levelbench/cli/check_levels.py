"""``levelbench check`` for operators and networks: compares them with a reference, tensor by tensor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.cli.findings import chosen, finish, installed, open_frameworks
from levelbench.errors import DataError, MissingError, UnknownNameError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from levelbench.checks.findings import Report
    from levelbench.networks.network import Network
    from levelbench.networks.probes import Agreement, BackendAgreement, TensorAgreement
    from levelbench.operators.contract import OperatorBackend
    from levelbench.operators.probes.files import Request
    from levelbench.report.tables import Table

__all__ = [
    "DTYPES",
    "NetworkWords",
    "OperatorWords",
    "check_engines",
    "check_model",
    "check_operators",
    "load_network",
    "read_attribute",
    "read_shape",
]

_KINDS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
DTYPES = ("float16", "bfloat16", "float32", "float64")
"""The dtypes that an operator may be checked in."""


@dataclass(frozen=True)
class OperatorWords:
    """The options of a check of operators."""

    frameworks: str
    device: str
    only: str
    reference: str
    shapes: tuple[str, ...]
    attributes: tuple[str, ...]
    dtypes: str
    heatmap: Path | None
    seed: int
    runs: int
    timeout: float


def check_operators(file: Path, words: OperatorWords, as_json: bool) -> int:
    """Check the operators in ``file``, each in its own process; returns the exit code."""
    from levelbench.checks.findings import NOTHING_CHECKED
    from levelbench.operators.probes.files import Request, check_isolated, names_isolated

    wanted = _dtypes(words.dtypes)
    inputs = [read_shape(each) for each in words.shapes]
    sizes = {name: size for name, size, _ in inputs}
    kinds = {name: kind for name, _, kind in inputs if kind}
    given = dict(read_attribute(each) for each in words.attributes)
    _check_heatmap(words.heatmap)
    frameworks = open_frameworks(words.frameworks, words.device)
    timeout = words.timeout
    names = chosen(names_isolated(file, timeout), words.only, f"operator of {file}")
    requests = [
        Request(
            str(file),
            name,
            framework,
            words.device,
            words.reference,
            sizes,
            wanted,
            words.seed,
            kinds,
            given,
            words.runs,
        )
        for name in names
        for framework in frameworks
    ]
    reports, drawn = _reports(requests, lambda request: check_isolated(request, timeout_s=timeout))
    code = finish(reports, as_json)
    if words.heatmap is not None:
        _draw_heatmap(drawn, words.heatmap)
    if code == NOTHING_CHECKED:
        click.echo("give --shape, or define examples in the file", err=True)
    return code


def _reports(
    requests: list[Request], check: Callable[[Request], tuple[Report, Any]]
) -> tuple[list[Report], tuple[str, Any] | None]:
    """The reports, and a title and a deviation to draw. What a framework cannot run is printed."""
    reports: list[Report] = []
    drawn: tuple[str, Any] | None = None
    refused: UnsupportedError | None = None
    for request in requests:
        try:
            report, deviation = check(request)
        except UnsupportedError as error:
            skipped = f"{request.operator} on {request.framework}: not checked: {error.asked}: {error.found}"
            click.echo(skipped, err=True)
            refused = refused or error
            continue
        reports.append(report)
        # Draw a wrong result rather than a right one.
        if deviation is not None and (drawn is None or report.failed):
            drawn = (f"{request.operator} on {request.framework}: |actual - expected|", deviation)
    if refused is not None and not reports:
        raise refused
    return reports, drawn


def _dtypes(words: str) -> tuple[str, ...]:
    from levelbench.errors import UnknownNameError

    found = tuple(dict.fromkeys(each.strip() for each in words.split(",") if each.strip()))
    for each in found:
        if each not in DTYPES:
            raise UnknownNameError("dtype", each, DTYPES)
    return found


def read_shape(word: str) -> tuple[str, tuple[int, ...], str]:
    """``X=8x16:int64`` as a name, sizes and a dtype. ``X=`` is a scalar; without a dtype it is floating-point."""
    from levelbench.errors import UnknownNameError

    name, equals, rest = word.partition("=")
    text, _, kind = rest.partition(":")
    if kind and kind not in _KINDS:
        raise UnknownNameError(f"dtype of --shape {word}", kind, _KINDS)
    sizes = [each for each in text.lower().split("x") if text]
    if not equals or not name or not all(each.isdecimal() for each in sizes):
        raise UsageError(f"--shape {word}", "it is not NAME=SIZES", "write --shape X=8x16")
    return name, tuple(int(each) for each in sizes), kind


def read_attribute(word: str) -> tuple[str, Any]:
    """``axes=0,1`` as a name and a list, ``epsilon=1e-5`` as a name and a number; anything else is text."""
    name, equals, text = word.partition("=")
    if not equals or not name:
        raise UsageError(f"--attr {word}", "it is not NAME=VALUE", "write --attr epsilon=1e-5")
    values = [_number(each) for each in text.split(",")]
    return name, values if len(values) > 1 else values[0]


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_heatmap(path: Path | None) -> None:
    """Refuse a picture that cannot be made, before anything runs."""
    if path is None:
        return
    from levelbench.report.run_figures import can_draw

    if path.suffix not in (".png", ".svg"):
        raise UsageError(f"--heatmap {path}", f"its name ends in {path.suffix!r}", "end it in .png or .svg")
    if not can_draw():
        raise MissingError(f"--heatmap {path}", "matplotlib is not installed", "pip install levelbench[plot]")


def _draw_heatmap(drawn: tuple[str, Any] | None, path: Path) -> None:
    from levelbench.report.operators import write_heatmap

    if drawn is None:
        click.echo(f"no heat map: there is no reference, or no output has its shape; {path} is not written", err=True)
        return
    title, deviation = drawn
    click.echo(f"heat map: {write_heatmap(deviation, path, title)}", err=True)


def check_engines(path: Path, device: str, operator: str, as_json: bool) -> int:
    """Check the engine that a file defines, with the node tests of one operator or of all; returns the exit code."""
    from levelbench.cli.progress_line import ProgressLine
    from levelbench.networks.probes.engine import check_engine

    def tell(probe: str) -> None:
        if line.live:
            line.say(f"{path.stem}: {probe}")

    with ProgressLine() as line:
        report = check_engine(path, device, (operator,) if operator else (), tell)
    return finish([report], as_json)


_SHOWN = 12
_USUAL = ("torch", "jax", "onnxruntime")


@dataclass(frozen=True)
class NetworkWords:
    """The options of a check of a network."""

    frameworks: str
    device: str
    reference: str
    shapes: tuple[str, ...]
    seed: int
    batch: int
    sizes: tuple[str, ...]
    inputs: Path | None
    tolerance: float
    gradients: bool
    operators: bool
    modes: tuple[str, ...]
    trial_s: float | None
    """Limit of processor time for a trial inference of a file with loops; ``None``: the usual one."""


def check_model(what: str, words: NetworkWords, as_json: bool) -> int:
    """Check the network; returns 1 for a finding, 3 if no framework can run it, 4 if nothing was compared."""
    from levelbench.networks.probes import compare_network
    from levelbench.operators.frameworks import installed_frameworks, open_framework

    network = load_network(what)
    names = open_frameworks(words.frameworks, words.device) if words.frameworks else installed(_USUAL, words.device)
    if words.reference:
        open_frameworks(words.reference, "cpu" if words.reference == "numpy" else words.device)
    modes = _modes(words.modes, names)
    inputs = _network_inputs(network, words)
    if Path(what).suffix:
        from levelbench.networks.trial import refuse_bombs

        shapes = {name: value.shape for name, value in inputs.items()}
        refuse_bombs(network, what, words.batch, {}, shapes=shapes, limit_s=words.trial_s)
    backends = {name: open_framework(name, words.device if name != "numpy" else "cpu") for name in names}
    for name, mode in modes.items():
        _check_mode(name, mode, backends[name])

    def compare(reference: str) -> Agreement:
        return compare_network(
            network,
            backends,
            open_framework(reference, "cpu" if reference == "numpy" else words.device),
            inputs,
            gradients=words.gradients,
            operators=words.operators,
            modes=modes,
            tolerance=words.tolerance,
            seed=words.seed,
            reference_name=reference,
        )

    try:
        found = compare(words.reference or "numpy")
    except MemoryError as error:
        raise UsageError(f"check {what}", f"it takes more memory than is free ({error})", "use smaller sizes") from None
    except UnsupportedError as error:
        # NumPy and ONNX's reference together lack some operators that ONNX Runtime has.
        if words.reference or not installed_frameworks(("onnxruntime",), words.device):
            raise
        click.echo(f"compared with onnxruntime, because numpy cannot run it: {error.asked}: {error.found}", err=True)
        found = compare("onnxruntime")
    _print_agreement(found, as_json)
    return _exit_code(found, what, words)


def _exit_code(found: Agreement, what: str, words: NetworkWords) -> int:
    from levelbench.checks.findings import NOTHING_CHECKED, exit_code

    lacking = [each for each in found.backends if each.lacks]
    if lacking and len(lacking) == len(found.backends):
        from levelbench.operators.frameworks import installed_frameworks

        tried = {each.backend for each in lacking}
        other = next((each for each in installed_frameworks(("onnxruntime", "numpy")) if each not in tried), "")
        given = [f"--inputs {words.inputs}"] if words.inputs is not None else []
        given += [f"--shape {quote(each)}" for each in words.shapes] + [f"--size {quote(each)}" for each in words.sizes]
        command = " ".join(["levelbench check", what, *given, "--framework", other])
        do = f"{command} runs it there" if other else "choose another framework"
        raise UnsupportedError(f"{found.network} on {lacking[0].backend}", lacking[0].lacks, do)
    code = exit_code([each.report(found.network) for each in found.backends])
    if code == NOTHING_CHECKED and any(each.compared for each in found.backends):
        # All that differs is rounding.
        return 0
    if code == NOTHING_CHECKED:
        click.echo("nothing was compared, for the reasons above", err=True)
    return code


def load_network(what: str) -> Network:
    """The network in a model file, or the one of that name in the zoo."""
    from levelbench.networks import zoo

    if not Path(what).suffix:
        return zoo.build(what)
    from levelbench.networks.files import load

    return load(Path(what))


def _modes(words: tuple[str, ...], names: list[str]) -> dict[str, str]:
    found = {}
    for word in words:
        name, equals, mode = word.partition("=")
        if not equals or not mode:
            raise UsageError(f"--mode {word}", "it is not FRAMEWORK=MODE", "write --mode torch=compiled")
        if name not in names:
            raise UnknownNameError("framework of --mode", name, names)
        found[name] = mode
    return found


def _check_mode(name: str, mode: str, backend: OperatorBackend) -> None:
    known = getattr(backend, "modes", ())
    if mode not in known:
        raise UnknownNameError(f"mode of {name}", mode, known)


def _network_inputs(network: Network, words: NetworkWords) -> dict[str, Any]:
    """The inputs from the file, or random inputs of the given shapes."""
    if words.inputs is not None:
        return _from_file(network, words.inputs)
    from levelbench.networks.values import make_inputs

    shapes = {}
    for word in words.shapes:
        name, shape, kind = read_shape(word)
        if kind:
            raise UsageError(f"--shape {word}", "the model states the dtypes of its inputs", "leave the dtype out")
        shapes[name] = shape
    known = [each.name for each in network.inputs]
    for name in shapes:
        if name not in known:
            raise UnknownNameError("input of --shape", name, known)
    values = [replace(each, shape=shapes.get(each.name, each.shape)) for each in network.inputs]
    sizes = _sizes(words.sizes, network)
    if not shapes:
        from levelbench.networks.shapes import usual_sizes

        chosen = usual_sizes(network, sizes, words.batch)
        if chosen:
            said = " ".join(f"--size {quote(f'{name}={size}')}" for name, size in chosen.items())
            click.echo(f"{network.name}: the file leaves sizes open, taken as {said}", err=True)
        sizes |= chosen
    return make_inputs(values, words.batch, words.seed, {**network.sizes, **sizes}, network.fills)


def _sizes(words: tuple[str, ...], network: Network) -> dict[str, int]:
    from levelbench.networks.shapes import open_sizes

    found = {}
    for word in words:
        name, equals, size = word.rpartition("=")
        if not equals or not size.isdecimal() or int(size) < 1:
            raise UsageError(
                f"--size {word}", "it is not NAME=SIZE with a size of at least 1", "write --size length=16"
            )
        if name == "batch":
            raise UsageError(f"--size {word}", "the batch has its own option", f"--batch {size}")
        if name not in (known := open_sizes(network)):
            raise UnknownNameError(f"open size of {network.name}", name, known)
        found[name] = int(size)
    return found


def _from_file(network: Network, path: Path) -> dict[str, Any]:
    import zipfile

    import numpy as np

    if not path.is_file():
        raise MissingError(f"inputs {path}", "there is no such file", "give a .npz file with one array for each input")
    try:
        with np.load(path, allow_pickle=False) as held:
            found = {name: held[name] for name in held.files}
    except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise DataError(f"inputs {path}", f"NumPy cannot read it: {error}", "write it with numpy.savez") from None
    for each in network.inputs:
        if each.name not in found:
            raise UsageError(f"inputs {path}", f"{each.name!r} is missing", "add an array for each input")
    return {each.name: _typed(found[each.name], each.dtype) for each in network.inputs}


def _typed(value: Any, dtype: str) -> Any:
    """NumPy stores arrays of ``ml_dtypes`` as untyped bytes; the model knows their type."""
    from levelbench.networks.values import dtype_of

    return value.view(dtype_of(dtype)) if value.dtype.kind == "V" and dtype else value


def _print_agreement(found: Agreement, as_json: bool) -> None:
    if as_json:
        shared.emit_json(found.to_dict())
        return
    tables = [_agreement_table(found, each) for each in found.backends if each.tensors]
    shared.print_tables(*tables)
    if tables:
        click.echo()
    for each in found.backends:
        for line in _agreement_lines(found, each):
            click.echo(line)


def _agreement_lines(found: Agreement, each: BackendAgreement) -> list[str]:
    start = f"{found.network} on {each.backend}"
    if each.lacks:
        return [f"{start}: not compared: {each.lacks}"]
    if each.raised:
        return [f"{start}: it raises {each.raised}"]
    counts = {kind: [one for one in each.tensors if one.kind == kind] for kind in ("output", "gradient")}
    said = []
    for kind, tensors in counts.items():
        compared = [one for one in tensors if one.status != "not compared"]
        good = sum(one.status != "wrong" for one in compared)
        if compared:
            said.append(f"{good} of {len(compared)} {kind}s agree")
        elif tensors:
            said.append(f"{kind}s not compared: {tensors[0].detail}")
    said = said or ["no output is a tensor, and sequences are not compared"]
    repeats = "" if each.repeats is None else f"; two runs {'agree' if each.repeats else 'do not agree'} bit for bit"
    lines = [f"{start} against {found.reference}: {', '.join(said)}{repeats}"]
    lines += [f"  {one.kind} {one.detail}" for one in each.wrong[:_SHOWN]]
    if len(each.wrong) > _SHOWN:
        lines.append(f"  and {len(each.wrong) - _SHOWN} more")
    return [*lines, *(f"  {one.phase}: {one}" for one in each.divergences)]


def _agreement_table(found: Agreement, each: BackendAgreement) -> Table:
    from levelbench.report.tables import Column, Table

    columns = (
        Column("tensor", "Tensor"),
        Column("kind", "Kind"),
        Column("status", "Status"),
        Column("relative", "Largest"),
        Column("limit", "Allowed"),
        Column("l2", "L2"),
        Column("cosine", "1 - cosine"),
    )
    outputs = [one for one in each.tensors if one.kind == "output"]
    compared = [one for one in each.tensors if one.kind == "gradient" and one.status != "not compared"]
    gradients = sorted(compared, key=_badness, reverse=True)
    notes = ["largest: the largest deviation relative to the tensor's largest value; L2: relative to its norm"]
    if any(one.status == "rounding" for one in each.tensors):
        notes.append("rounding: beyond the tolerance, but no larger than what rounding does to the reference")
    if len(gradients) > _SHOWN:
        notes.append(f"the {_SHOWN} of {len(gradients)} gradients closest to or beyond their limit; --json has all")
    rows = tuple(_agreement_row(one) for one in (*outputs, *gradients[:_SHOWN]))
    mode = f" ({each.mode})" if each.mode else ""
    return Table("agreement", f"{found.network} on {each.backend}{mode}", columns, rows, tuple(notes)).without_empty()


def _badness(one: TensorAgreement) -> tuple[bool, bool, float]:
    return one.status == "wrong", one.status != "rounding", one.relative


def _agreement_row(one: TensorAgreement) -> tuple[Any, ...]:
    from levelbench.report.tables import Absent, Text

    start = (Text(one.name), Text(one.kind), Text(one.status))
    if one.errors is None:
        return (*start, *(Absent(one.detail) for _ in range(4)))
    numbers = (one.relative, one.limit, one.errors.relative, one.errors.cosine)
    return (*start, *(Text(f"{each:.2g}") for each in numbers))
