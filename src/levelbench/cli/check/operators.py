"""``levelbench check FILE`` on operators: what is asked for, what was found, and how it is printed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli.check.findings import finish, open_frameworks
from levelbench.errors import MissingError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from levelbench.checks.findings import Report
    from levelbench.operators.probes.files import Request

__all__ = ["DTYPES", "OperatorWords", "check_operators", "read_shape"]

_KINDS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
DTYPES = ("float16", "bfloat16", "float32", "float64")
"""The dtypes that an operator may be checked in."""


@dataclass(frozen=True)
class OperatorWords:
    """What the command line says about the check of operators."""

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
    """Check the operators of ``file``, each in a process of its own; the exit code."""
    from levelbench.checks.findings import NOTHING_CHECKED
    from levelbench.operators.probes.files import Request, check_isolated, names_isolated

    wanted = _dtypes(words.dtypes)
    inputs = [read_shape(each) for each in words.shapes]
    sizes = {name: size for name, size, _ in inputs}
    kinds = {name: kind for name, _, kind in inputs if kind}
    given = dict(_attribute(each) for each in words.attributes)
    _check_heatmap(words.heatmap)
    chosen = open_frameworks(words.frameworks, words.device)
    timeout = words.timeout
    names = _names(names_isolated(file, timeout), words.only, file)
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
        for framework in chosen
    ]
    reports, drawn = _checked(requests, lambda request: check_isolated(request, timeout_s=timeout))
    code = finish(reports, as_json)
    if words.heatmap is not None:
        _draw(drawn, words.heatmap)
    if code == NOTHING_CHECKED:
        click.echo("give --shape, or examples that the operator takes", err=True)
    return code


def _names(names: list[str], only: str, file: Path) -> list[str]:
    from levelbench.errors import UnknownNameError

    if only and only not in names:
        raise UnknownNameError(f"operator of {file}", only, names)
    return [only] if only else names


def _checked(
    requests: list[Request], check: Callable[[Request], tuple[Report, Any]]
) -> tuple[list[Report], tuple[str, Any] | None]:
    """The reports, and a title and a deviation to draw; what a framework cannot run is told."""
    reports: list[Report] = []
    drawn: tuple[str, Any] | None = None
    refused: UnsupportedError | None = None
    for request in requests:
        try:
            report, deviation = check(request)
        except UnsupportedError as error:
            told = f"{request.operator} on {request.framework}: not checked: {error.asked}: {error.found}"
            click.echo(told, err=True)
            refused = refused or error
            continue
        reports.append(report)
        # What is wrong is worth a picture before what is right.
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
    """``X=8x16:int64`` as a name, sizes and a dtype; ``X=`` is a scalar, and no dtype a floating one."""
    from levelbench.errors import UnknownNameError

    name, equals, rest = word.partition("=")
    text, _, kind = rest.partition(":")
    if kind and kind not in _KINDS:
        raise UnknownNameError(f"dtype of --shape {word}", kind, _KINDS)
    sizes = [each for each in text.lower().split("x") if text]
    if not equals or not name or not all(each.isdecimal() for each in sizes):
        raise UsageError(f"--shape {word}", "it is no name and sizes", "write --shape X=8x16")
    return name, tuple(int(each) for each in sizes), kind


def _attribute(word: str) -> tuple[str, Any]:
    """``axes=0,1`` as a name and a list, ``epsilon=1e-5`` as a name and a number; what is neither is text."""
    name, equals, text = word.partition("=")
    if not equals or not name:
        raise UsageError(f"--attr {word}", "it is no name and value", "write --attr epsilon=1e-5")
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
    """Refuse a picture that cannot be made before anything is run."""
    if path is None:
        return
    from levelbench.report.run_figures import can_draw

    if path.suffix not in (".png", ".svg"):
        raise UsageError(f"--heatmap {path}", f"its name ends in {path.suffix!r}", "end it in .png or .svg")
    if not can_draw():
        raise MissingError(f"--heatmap {path}", "matplotlib is not here", "pip install levelbench[plot]")


def _draw(drawn: tuple[str, Any] | None, path: Path) -> None:
    from levelbench.report.operators import write_heatmap

    if drawn is None:
        click.echo(f"no heat map: there is no reference, or no output of its shape; {path} is not written", err=True)
        return
    title, deviation = drawn
    click.echo(f"heat map: {write_heatmap(deviation, path, title)}", err=True)
