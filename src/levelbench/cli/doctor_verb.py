"""``levelbench doctor``: examine this machine: clocks, noise, ceilings, an A/A self-test."""

from __future__ import annotations

from typing import Any

import click

from levelbench.cli import options as shared
from levelbench.errors import DefinitionError, UsageError

__all__ = ["command"]


@click.command("doctor")
@click.option("--seconds", type=float, default=10.0, show_default=True, help="Approximate time to measure.")
@shared.printing_options
@shared.answer_options
def command(seconds: float, as_json: bool) -> int:
    """Measure this machine, test levelbench on it, and say whether it is fit to measure on. Exits with 1 if not.

    The A/A self-test compares the same work with itself many times: any difference that it finds is a false alarm.
    """
    from levelbench.measure.selftest import run_doctor

    if not seconds > 0:
        raise UsageError(f"--seconds {seconds:g}", "it is not positive", "give a number of seconds, such as 10")
    diagnosis = run_doctor(seconds, gemms=_gemms())
    if as_json:
        shared.emit_json(diagnosis.to_dict())
        return int(bool(diagnosis.against))
    from levelbench.report.operators import ceilings_table, doctor_lines

    shared.print_tables(ceilings_table(diagnosis.ceilings))
    shared.say("", *doctor_lines(diagnosis))
    return int(bool(diagnosis.against))


def _gemms() -> list[Any]:
    """The matrix products of the frameworks that can run here, in addition to NumPy's own."""
    from levelbench import plugins
    from levelbench.operators.frameworks import load_framework

    found: list[Any] = []
    for name in sorted(plugins.names("framework")):
        try:
            framework = load_framework(name)
        except DefinitionError as error:
            click.echo(f"left out: {error.asked}: {error.found}", err=True)
            continue
        if framework.lacks() is None:
            found += framework.gemms()
    return found
