"""The pages of the zoo: every entry with our counts and the published ones, and the models of other suites.

``python -m levelbench.networks.zoo.table`` prints ``docs/reference/zoo.md``, with the word ``coverage``
``docs/reference/zoo-coverage.md``, and tests compare both with the code.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from levelbench.networks.cost import network_cost
from levelbench.networks.zoo.entry import Architecture, entry, names

_HEAD = """\
# The zoo

Networks by name, built only from their definition here; weights come from the seed, the same in every framework.
Tests compare each with its paper: counts to the scalar or with the difference explained, multiply-adds to the printed
digits, and the mathematics with an independent implementation (`tests/networks/zoo/`).

<!-- not run: measures ResNet-18 on three frameworks for minutes; tests/networks/zoo checks its networks -->

    levelbench network resnet18 --framework torch,onnxruntime,jax

This page is printed by `python -m levelbench.networks.zoo.table > docs/reference/zoo.md`, and a test compares it with
the code.

- **Parameters** are trainable scalars; running means and variances are not counted. *Published* is what the source
  says; an empty cell means that it was not published to our knowledge.
- **Multiply-adds** are those of convolutions, matrix products, recurrent layers and attention, for one sample at the
  network's default sizes, which are stated if they are open.
- ResNets of 50 layers or more are version 1.5, which is commonly measured under these names; `-v1` is the paper's.
"""
_COLUMNS = (
    "network",
    "what it is",
    "paper",
    "parameters",
    "published",
    "multiply-adds",
    "published",
    "source and note",
)


def page() -> str:
    """The whole page, as Markdown."""
    entries = [entry(name) for name in names()]
    parts = [_HEAD]
    for kind in sorted({each.kind for each in entries}):
        chosen = [each for each in entries if each.kind == kind]
        lines = [_line(_COLUMNS), _line(["---"] * len(_COLUMNS)), *(_line(row(each)) for each in chosen)]
        papers = sorted({each.paper for each in chosen})
        parts.append(f"## {kind.capitalize()}\n\n" + "\n".join([*lines, "", *(f"- {paper}" for paper in papers), ""]))
    return "\n".join(parts)


def row(of: Architecture) -> tuple[str, ...]:
    """The cells of an entry."""
    network, published = of.build(), of.published
    sizes = ", ".join(f"{name} {size}" for name, size in network.sizes.items() if name != "batch")
    ours = _operations(network_cost(network).multiply_adds)
    remarks = [each[:1].upper() + each[1:] for each in (published.source, published.note) if each]
    return (
        f"`{of.name}`",
        of.summary,
        of.paper.split(":")[0],
        f"{network.parameter_count():,}",
        "" if published.parameters is None else f"{published.parameters:,}",
        f"{ours} ({sizes})" if sizes else ours,
        "" if published.multiply_adds is None else _operations(published.multiply_adds, exact=True),
        ". ".join(remarks).replace("|", "\\|"),
    )


_COVERAGE = """\
# Models of other suites in the zoo

The models of Fathom, TBD, DeepBench and MLPerf, and the corresponding entries of the [zoo](zoo.md). *Type* means the
same kind of network, but of a different size or generation. Missing models are listed too. This page is printed by
`python -m levelbench.networks.zoo.table coverage > docs/reference/zoo-coverage.md`, and a test compares it with the
code.
"""


def coverage() -> str:
    """The page of other suites' models, as Markdown, from ``coverage.toml``."""
    text = files(__package__).joinpath("coverage.toml").read_text(encoding="utf-8")
    return "\n".join([_COVERAGE, *(_suite(each) for each in tomllib.loads(text)["suites"])])


def _suite(suite: Mapping[str, Any]) -> str:
    """A suite's section; of one with rounds also how many benchmarks of each round have an entry."""
    rounds: Sequence[str] = suite.get("rounds", ())
    columns = [suite["model"], *(["rounds"] if rounds else []), "entry", "how close"]
    lines = [_line(columns), _line(["---"] * len(columns))]
    found = {each: [0, 0] for each in rounds}
    for name, entries, how, *span in suite["rows"]:
        cells = [" to ".join(dict.fromkeys(span))] if rounds else []
        lines.append(_line([name, *cells, ", ".join(f"`{each}`" for each in entries) or "missing", how]))
        for each in rounds[rounds.index(span[0]) : rounds.index(span[1]) + 1] if rounds else ():
            found[each][0] += bool(entries)
            found[each][1] += 1
    counts = ", ".join(f"{mine} of {all_} in v{each}" for each, (mine, all_) in found.items())
    after = [f"Benchmarks with an entry: {counts}."] if rounds else []
    parts = [f"## {suite['title']}", suite.get("text", ""), "\n".join(lines), *after, suite.get("after", "")]
    return "\n\n".join(each for each in parts if each) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _operations(count: float, *, exact: bool = False) -> str:
    unit, scale = next(
        ((unit, scale) for unit, scale in (("G", 1e9), ("M", 1e6), ("K", 1e3)) if count >= scale), ("", 1.0)
    )
    return f"{count / scale:{'g' if exact else '.4g'}} {unit}".strip()


if __name__ == "__main__":
    sys.stdout.write(coverage() if sys.argv[1:] == ["coverage"] else page())
