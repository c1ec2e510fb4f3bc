"""What a dataset is made of, in tables for ``levelbench data stat``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared

if TYPE_CHECKING:
    from levelbench.training.datasets import Dataset

__all__ = ["figures", "print_figures"]

_MOST_CLASSES = 20


def figures(dataset: Dataset, told: Callable[[int], None]) -> dict[str, Any]:
    """Class balance by split with its chi-squared test, moments of the inputs, equal inputs.

    ``told`` hears how many training examples were read.
    """
    from levelbench.training.datasets import contents

    splits = {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}
    balance: dict[str, Any] = {}
    for name, split in splits.items():
        counts = contents.class_counts(split, dataset.classes)
        if counts is not None:
            test = contents.evenness(counts)
            balance[name] = {"counts": counts.tolist(), "chi_squared": test.statistic, "p_value": test.p_value}
    found = contents.moments(dataset.train, told)
    equal = contents.duplicates(dataset)
    inputs = dataset.train.inputs
    return {
        "inputs": {"shape": list(inputs.shape[1:]), "dtype": str(inputs.dtype)},
        "balance": balance,
        "moments": {"mean": list(found.mean), "std": list(found.std)} if found else None,
        "duplicates": {"within": equal.within, "across": equal.across} if equal else None,
    }


def print_figures(dataset: Dataset, found: dict[str, Any]) -> None:
    """Tables of :func:`figures`."""
    from levelbench.report.runs import listing

    shape = "x".join(map(str, found["inputs"]["shape"]))
    marked = ", synthetic" if dataset.synthetic else ""
    click.echo(f"{dataset.name}{marked}: inputs of {shape} {found['inputs']['dtype']}, {dataset.classes} classes\n")
    balance = found["balance"]
    of_classes = ["smallest class", "largest class", "equal classes"] if balance else []
    rows = [_row(dataset, found, name) for name in dataset.sizes()]
    shared.print_tables(listing("splits", "splits", ["split", "examples", *of_classes], rows))
    if balance and dataset.classes <= _MOST_CLASSES:
        click.echo()
        rows = [[str(at), *(str(balance[name]["counts"][at]) for name in balance)] for at in range(dataset.classes)]
        shared.print_tables(listing("classes", "classes", ["class", *balance], rows))
    click.echo()
    if found["moments"]:
        means, deviations = (", ".join(f"{each:.4f}" for each in found["moments"][key]) for key in ("mean", "std"))
        click.echo(f"training inputs as stored: mean {means}; standard deviation {deviations}")
    if dataset.normalisation:
        constants = dataset.normalisation
        scaled = [", ".join(f"{each:.4f}" for each in values) for values in (constants.mean, constants.std)]
        click.echo(f"normalised: (x / {constants.highest:g} - {scaled[0]}) / {scaled[1]} ({constants.source})")
    if found["duplicates"]:
        equal = found["duplicates"]
        within = ", ".join(f"{count:,} in {name}" for name, count in equal["within"].items())
        across = ", ".join(f"{count:,} in {pair}" for pair, count in equal["across"].items())
        click.echo(f"equal inputs: surplus {within}; shared {across}")


def _row(dataset: Dataset, found: dict[str, Any], name: str) -> list[str]:
    size = f"{dataset.sizes()[name]:,}"
    if name not in found["balance"]:
        return [name, size]
    balance = found["balance"][name]
    test = f"chi-squared {balance['chi_squared']:.4g}, p = {balance['p_value']:.2g}"
    return [name, size, f"{min(balance['counts']):,}", f"{max(balance['counts']):,}", test]
