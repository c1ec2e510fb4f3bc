"""``levelbench check WHAT``: whether a file of custom operators, or a network, is well-formed and right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from levelbench.cli import options as shared
from levelbench.cli.check_operators import DTYPES, OperatorWords, check_operators
from levelbench.errors import UsageError

__all__ = ["command"]

_OF_OPERATORS = {
    "only": "--operator",
    "attributes": "--attr",
    "dtypes": "--dtype",
    "heatmap": "--heatmap",
    "runs": "--repeat",
    "timeout": "--timeout",
}
_OF_NETWORKS = {
    "batch": "--batch",
    "sizes": "--size",
    "inputs": "--inputs",
    "tolerance": "--tolerance",
    "gradients": "--no-gradients",
    "operators": "--each-operator",
    "modes": "--mode",
}
_SOURCES = (".py", ".cpp", ".cc", ".cxx")


@click.command("check")
@click.argument("what")
@click.option("--framework", "frameworks", default="", help="Frameworks, commas between; default: numpy for operators.")
@click.option("--device", default="cpu", show_default=True, help="Device of the frameworks.")
@click.option("--operator", "only", default="", help="One operator of the file; default: all.")
@click.option("--reference", default="", help="FILE.py:function; for a network a framework, default numpy.")
@click.option("--shape", "shapes", multiple=True, help="Shape of an input, X=8x16 or I=8:int64; default: examples.")
@click.option("--attr", "attributes", multiple=True, help="Attribute of the operator, epsilon=1e-5 or axes=0,1.")
@click.option("--dtype", "dtypes", default="", help=f"Of {', '.join(DTYPES)}, commas between; default: all it takes.")
@click.option("--heatmap", type=click.Path(path_type=Path), help="Draw the deviation to this .png or .svg file.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of inputs and directions.")
@click.option(
    "--repeat",
    "runs",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Equal calls, to see whether they agree.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds that one operator may take.",
)
@click.option("--batch", type=click.IntRange(min=1), default=2, show_default=True, help="Network: samples.")
@click.option("--size", "sizes", multiple=True, help="Network: an open size, length=16.")
@click.option("--inputs", type=click.Path(path_type=Path), help="Network: a .npz file with its inputs by name.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Network: times the usual tolerance.",
)
@click.option("--no-gradients", "gradients", flag_value=False, default=True, help="Network: outputs only.")
@click.option("--each-operator", "operators", is_flag=True, help="Network: each operator alone, too.")
@click.option("--mode", "modes", multiple=True, help="Network: how a framework executes, torch=compiled.")
@shared.json_option
@shared.debug_option
@click.pass_context
def command(context: click.Context, /, what: str, as_json: bool, debug: bool, **given: Any) -> int:
    """Check WHAT: the operators that a file (.py or .cpp) defines, or a network, a model (.onnx) or one of the zoo.

    Operators: forward, gradients, memory, dtypes, shapes, NaN, each in a process of its own, so that one that crashes
    is a finding. Networks: outputs and gradients on each framework against the reference's, by tensor, and the first
    operator at which two part. Exits with 1 where anything is wrong.
    """
    if Path(what).suffix in _SOURCES or not _is_network(what):
        _refuse(context, _OF_NETWORKS, f"{what} holds operators")
        words = {name: given[name] for name in OperatorWords.__dataclass_fields__}
        return check_operators(
            Path(what), OperatorWords(**{**words, "frameworks": words["frameworks"] or "numpy"}), as_json
        )
    from levelbench.cli.check_network import NetworkWords, check_model

    _refuse(context, _OF_OPERATORS, f"{what} is a network")
    return check_model(what, NetworkWords(**{name: given[name] for name in NetworkWords.__dataclass_fields__}), as_json)


def _is_network(what: str) -> bool:
    """Whether it is a model's file, or a name of the zoo; ``UnknownNameError`` for a word that is no file either."""
    path = Path(what)
    if path.suffix or path.exists() or len(path.parts) > 1:
        return bool(path.suffix)
    from levelbench.networks import zoo

    zoo.entry(what)
    return True


def _refuse(context: click.Context, names: dict[str, str], why: str) -> None:
    """Refuse options that were given and mean nothing here."""
    for name, option in names.items():
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(option, f"{why}, and the option is for the other kind", "leave it out")
