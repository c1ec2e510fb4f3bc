"""Options of the verbs that start several ranks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.experiments.request import TeamOptions

__all__ = ["listed_schemes", "team", "team_options"]

Command = TypeVar("Command", bound=Callable[..., Any])


def team_options(command: Command) -> Command:
    """By which scheme, engine and communicator; not how many."""
    for option in (
        click.option(
            "--timeout",
            type=click.FloatRange(min=1),
            default=300.0,
            show_default=True,
            help="Seconds after which a rank that does not answer is taken for lost.",
        ),
        click.option("--lr-scale", help="Weak scaling: learning rate times the workers: none, linear, sqrt."),
        click.option("--scaling", help="strong: the batch stays; weak: each worker's part of it stays."),
        click.option("--communicator", help="What ranks talk through: gloo, mpi, nccl; default: the engine's own."),
        click.option(
            "--engine",
            help="What starts the ranks: process, torchrun, mpi, slurm, 'hosts[rate=100mbit,delay=5ms]', ...",
        ),
        click.option("--scheme", help="How ranks keep together: all-reduce, 'top-k[ratio=0.01]', FILE.py:NAME, ..."),
    ):
        command = option(command)
    return command


def team(given: dict[str, Any], ranks: int | None) -> TeamOptions:
    """What was said about the team."""
    from levelbench.experiments.request import TeamOptions

    return TeamOptions(
        ranks, given["scheme"], given["engine"], given["communicator"], given["scaling"], given["lr_scale"]
    )


def listed_schemes(text: str | None) -> list[str | None]:
    """The schemes of a list with commas, but for those inside brackets."""
    if text is None:
        return [None]
    words = [word.strip() for word in re.split(r",(?![^\[]*\])", text)]
    if not all(words):
        raise UsageError(f"--scheme {text!r}", "it names none", "give one scheme, or several with commas between them")
    return list(words)
