"""``levelbench analyze utilisation``: operations a second against a measured peak, or a datasheet's."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.cli.analyze_threshold import entries_at

if TYPE_CHECKING:
    from levelbench.analysis.utilisation import PeakShare
    from levelbench.competition.entries import Submission

__all__ = ["utilisation_verb"]

_CANNOT_TELL = 4


@click.command("utilisation", short_help="Operations of runs or entries as a share of the peak.")
@click.argument("runs", nargs=-1, metavar="[RUNS|BOARD]...")
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the shares to this .svg or .png file.")
@shared.table_options
@shared.store_option
@shared.answer_options
def utilisation_verb(runs: tuple[str, ...], store_path: Path, as_json: bool, **given: Any) -> int:
    """Operations a second of RUNS, or of the entries of a BOARD, as a share of the peak of their machine.

    The peak of runs is the highest rate that levelbench operator or network measured in the same store, on the same
    machine and with the same threads. The peak of entries, ours or imported ones, is the datasheet's, and their
    operations are those of the zoo's network of that name.

    \b
      levelbench analyze utilisation digits
      levelbench analyze utilisation dawn-bench-entries/ImageNet --csv peaks.csv

    Exits with 4 if no share is known.
    """
    from levelbench.analysis.utilisation import utilisation
    from levelbench.report.utilisation import utilisation_table, write_utilisation

    shared.check_statistics(0.0, given["level"])
    shared.check_plot(given["plot"])
    shared.check_writable(given["csv_path"], given["markdown_path"])
    entries = entries_at(runs)
    lines: list[str] = []
    if entries is None:
        shares, lines = _of_runs(runs, store_path, given["level"])
        found = utilisation(shares, "measured")
    else:
        trained = [(name, each) for name, each in entries if each.mode == "training"]
        found = utilisation([_of_entry(name, each, given["level"]) for name, each in trained], "datasheet")
    table = utilisation_table(found)

    def write() -> dict[str, str]:
        written = shared.write_tables(given, [table], lines, title="Utilisation")
        if given["plot"] is not None:
            drawn = write_utilisation(found, given["plot"])
            written |= {"no_plot": "no share is known"} if drawn is None else {"plot": str(drawn)}
        return written

    shared.present([table], lines, lambda: {**asdict(found), "lines": lines}, write, as_json=as_json, apart=False)
    return 0 if any(each.share is not None for each in found.shares) else _CANNOT_TELL


def _of_runs(words: tuple[str, ...], store_path: Path, level: float) -> tuple[list[PeakShare], list[str]]:
    """A share for each group of runs on one machine that reached the target, and what speaks against them."""
    from dataclasses import replace

    from levelbench.analysis.stability import by_machine
    from levelbench.analysis.utilisation import peak_share
    from levelbench.cli.reporting import doubt_lines, require_sound
    from levelbench.measure.environment import machine_of
    from levelbench.records.operations import peaks_of, use_of_operations
    from levelbench.records.summary import in_order

    store = shared.open_store(store_path)
    groups = by_machine(in_order(shared.selected_groups(store, words)))
    caveats = require_sound(groups, "the utilisation", store_path)
    shares = []
    for group in groups:
        peaks = peaks_of(group.runs[0])
        uses = [(run, use) for run in group.runs if (use := use_of_operations(run, peaks)) is not None]
        rates = [
            run.samples_to_target / run.time_to_accuracy_s
            for run in group.runs
            if run.samples_to_target and run.time_to_accuracy_s
        ]
        each = sum(group.runs[0].operations_per_example.values()) or None
        ceiling = next((use.flop_s / use.utilisation for _, use in uses if use.utilisation), None)
        names = {"network": group.specification.recipe, "machine": machine_of(group.runs[0].environment)}
        found = peak_share(group.label, rates, each, ceiling, level=level, **names)
        if not group.reached:
            why: str | None = f"none of {group.n} runs reached its target, up to which examples are counted"
        elif not rates:
            why = "the runs do not count examples: have the program say how many it has seen (run.step(32), samples)"
        elif each is None and group.specification.scored_by is not None:
            why = (
                "the operations of a program's own network are not counted: make it a task (levelbench new task), or "
                "measure its network as an ONNX file (levelbench analyze roofline)"
            )
        else:
            why = next((use.reason for _, use in uses if use.reason), None) or group.runs[0].operations_reason
        shares.append(replace(found, reason=why) if found.share is None and why else found)
        if found.share is not None and group.reached < group.n:
            caveats.append(f"{group.label}: over the {group.reached} of {group.n} runs that reached their target")
    return shares, [*dict.fromkeys([*caveats, *doubt_lines(groups)])]


def _of_entry(name: str, entry: Submission, level: float) -> PeakShare:
    """The share of an entry, from its curves, its hardware's description and its model's name."""
    from levelbench.analysis.utilisation import peak_share
    from levelbench.cli.board_limits import known_limits

    known = known_limits(entry)
    rates = []
    for run in entry.runs:
        seconds = run.curve.time_s[-1] if run.curve.time_s else 0.0
        samples = run.curve.samples[-1] if run.curve.samples else 0.0
        if not samples and known.samples_per_epoch and run.curve.epoch:
            samples = run.curve.epoch[-1] * known.samples_per_epoch
        if seconds > 0:
            rates.append(samples / seconds)
    names = {"network": known.network, "machine": known.machine or entry.hardware.description}
    no_rate = "how many examples an epoch has is not known"
    if not any(run.curve.time_s for run in entry.runs):
        no_rate = "its curves record no time"
    return peak_share(name, rates, known.flops_per_sample, known.flop_s, level=level, no_rate=no_rate, **names)
