"""``python -m levelbench.networks.fuzz``: runs generated networks on every framework."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from levelbench.errors import LevelbenchError
from levelbench.networks.fuzz.generate import fuzz
from levelbench.operators.frameworks import open_framework


@click.command()
@click.option("--count", type=click.IntRange(min=1), default=200, show_default=True, help="Number of networks.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the first one.")
@click.option(
    "--framework", "frameworks", default="torch,jax,onnxruntime", show_default=True, help="Names, comma-separated."
)
@click.option("--reference", default="numpy", show_default=True, help="The framework to compare with.")
@click.option("--save", "folder", type=click.Path(path_type=Path), help="Folder for failures: model, inputs, text.")
def command(count: int, seed: int, frameworks: str, reference: str, folder: Path | None) -> None:
    """Compare frameworks on generated networks; exits with 1 if they disagree on any."""
    try:
        names = list(dict.fromkeys(each.strip() for each in frameworks.split(",") if each.strip()))
        backends = {name: open_framework(name, "cpu") for name in names}
        tally = fuzz(count, seed, backends, open_framework(reference, "cpu"), folder=folder, tell=click.echo)
    except LevelbenchError as error:
        click.echo(f"error: {error.asked}\nfound: {error.found}\n   do: {error.do}", err=True)
        sys.exit(error.exit_code)
    lacking = "".join(f"; {name} could not run {times}" for name, times in sorted(tally.unsupported.items()))
    click.echo(f"{tally.agree} of {count} networks agree on {', '.join(names)} and {reference}{lacking}")
    for path in tally.files:
        click.echo(f"written: {path}")
    sys.exit(1 if tally.failed else 0)


if __name__ == "__main__":
    command()
