"""``python -m levelbench.networks.validation.survey``: the table of ``docs/third-party.md``, a line a model.

The one idea: whatever is installed is compared, and what a framework cannot run is counted and named, not left out.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence

import click

from levelbench.errors import LevelbenchError
from levelbench.networks.validation.agreement import BackendAgreement
from levelbench.networks.validation.check import compare_network
from levelbench.networks.validation.third_party import MODELS, Shipped
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.frameworks import open_framework

__all__ = ["verdict_on"]


def verdict_on(one: BackendAgreement) -> tuple[str, str]:
    """(``agrees``, ``rounding``, ``unsupported`` or ``wrong``; the largest deviation, or why)."""
    if one.lacks:
        return "unsupported", one.lacks
    if one.raised:
        return "wrong", f"it raises {one.raised}"
    if one.wrong:
        return "wrong", "; ".join([one.wrong[0].detail, *(str(each) for each in one.partings)])
    worst = one.worst("output")
    status = "rounding" if any(each.status == "rounding" for each in one.tensors) else "agrees"
    return status, f"{worst.relative:.1e}" if worst else ""


def _line(model: Shipped, backends: Mapping[str, OperatorBackend], modes: Mapping[str, str]) -> list[tuple[str, str]]:
    network = model.network()
    reference = open_framework("onnxruntime", "cpu")
    found = compare_network(
        network,
        backends,
        reference,
        model.inputs(network),
        gradients=False,
        modes=modes,
        reference_name="onnxruntime",
    )
    return [verdict_on(each) for each in found.backends]


@click.command()
@click.option("--framework", "frameworks", default="torch,jax", show_default=True, help="Commas between.")
@click.option("--mode", "modes", multiple=True, help="How a framework executes: jax=eager.")
@click.option("--match", default="", help="Only models whose name contains this.")
def command(frameworks: str, modes: Sequence[str], match: str) -> None:
    """Compare the models that are installed with ONNX Runtime; a Markdown table, and counts."""
    names = [each.strip() for each in frameworks.split(",") if each.strip()]
    chosen = dict(each.split("=", 1) for each in modes)
    try:
        backends = {name: open_framework(name, "cpu") for name in names}
        counts: dict[str, Counter[str]] = {name: Counter() for name in names}
        click.echo(f"| model | {' | '.join(names)} |")
        click.echo(f"|---|{'---|' * len(names)}")
        for model in MODELS:
            if match not in model.name or model.path() is None:
                continue
            found = _line(model, backends, chosen)
            for name, (status, _) in zip(names, found, strict=True):
                counts[name][status] += 1
            click.echo(f"| {model.name} | {' | '.join(f'{status} ({detail})' for status, detail in found)} |")
    except LevelbenchError as error:
        click.echo(f"error: {error.asked}\nfound: {error.found}\n   do: {error.do}", err=True)
        sys.exit(error.exit_code)
    for name, count in counts.items():
        click.echo(f"{name}: " + ", ".join(f"{times} {status}" for status, times in sorted(count.items())))
    sys.exit(any(count["wrong"] for count in counts.values()))


if __name__ == "__main__":
    command()
