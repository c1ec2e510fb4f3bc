"""``levelbench infer``: latency, throughput and quality of a trained network under a scenario."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.cli.infer_words import SCENARIOS
from levelbench.errors import MissingError, UsageError

if TYPE_CHECKING:
    from levelbench.experiments.kernel import Place, Plan
    from levelbench.measure.verdict import Verdict
    from levelbench.records.inference import InferenceRecord, InferenceSpecification
    from levelbench.records.inference_summary import InferenceSummary

    InferencePlan = Plan[InferenceSpecification, InferenceRecord]
    Made = tuple[InferenceSummary, list[list[InferenceRecord]]]

__all__ = ["command"]

_PROCESSES = 3
_LARGEST = 2**32 - 1
"""The largest seed that every framework takes."""


@click.command("infer", cls=shared.Grouped)
@click.argument("what", metavar="TASK|MODEL")
@click.option(
    "--scenario", type=click.Choice(SCENARIOS), default="single-stream", show_default=True, help="Pattern of queries."
)
@click.option("--qps", type=float, help="Scenario server: queries per second.")
@click.option("--bound", help="Scenario server: latency bound, such as 15ms.")
@click.option("--find-peak", is_flag=True, help="Scenario server: find the highest rate that keeps the bound.")
@click.option(
    "--quantile", type=float, help="Quantile of the latency that counts.  [default: 0.9 single-stream, 0.99 elsewhere]"
)
@click.option(
    "--samples-per-query", type=click.IntRange(min=1), help="Scenario multi-stream: samples per query.  [default: 8]"
)
@click.option("--batch", type=click.IntRange(min=1), help="Batch size.  [default: 32 in scenario offline]")
@click.option("--workers", type=click.IntRange(min=1), help="Scenario server: threads that answer.  [default: 1]")
@click.option(
    "--duration", default="10s", show_default=True, help="Minimum duration of the queries; MLPerf requires 600s."
)
@click.option(
    "--queries",
    type=click.IntRange(min=1),
    help="Minimum number of queries (offline: samples).  [default: as early stopping needs; the set]",
)
@click.option("--samples", type=click.IntRange(min=1), help="Number of examples to draw queries from.  [default: all]")
@click.option("--generate", type=click.IntRange(min=2), help="Answer with so many generated tokens.")
@click.option("--prompt", type=click.IntRange(min=1), help="Tokens of a row that are given.  [default: the others]")
@click.option(
    "--preprocessing",
    type=click.Choice(["in", "out"]),
    default="out",
    show_default=True,
    help="Whether preprocessing of raw examples is on the clock.",
)
@click.option("--recipe", help="Recipe that trains the network.  [default: the task's first]")
@click.option("--run", "run_word", help="Run in the store whose trained network is used.")
@click.option("--train-seed", type=click.IntRange(0, _LARGEST), help="Seed of the run that trains it.  [default: 0]")
@shared.several("--framework", "frameworks", help="Framework, or several: torch:compiled,onnxruntime.")
@click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda, cuda:1, ...")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of the numeric libraries.  [default: theirs]")
@click.option(
    "--data", type=click.Path(path_type=Path), help="MODEL: .npz, IDX, folder of image classes. TASK: its data."
)
@click.option("--labels", type=click.Path(path_type=Path), help="IDX file with the labels of an IDX file of images.")
@click.option("--size", "sizes", multiple=True, help="Value of an open size of a MODEL without data: length=128.")
@click.option(
    "--timeout",
    "trial_s",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds of processor time for a trial of a MODEL with loops.  [default: 3]",
)
@click.option("--target-accuracy", type=float, help="Quality that the answers must reach, on the metric's scale.")
@click.option(
    "--quality-share",
    type=float,
    default=0.99,
    show_default=True,
    help="The same as a share of the reference's quality.",
)
@click.option("--audit", is_flag=True, help="Check that the timed answers are right and nothing is cached.")
@click.option(
    "--price-per-hour",
    type=float,
    help="Price of this machine in US dollars per hour, for the cost of a million answers.",
)
@click.option("--price-source", help="Source of that price.")
@click.option("--seed", type=click.IntRange(0, _LARGEST), default=0, show_default=True, help="Seed of the queries.")
@click.option(
    "-n", "--processes", type=int, default=_PROCESSES, show_default=True, help="Number of fresh processes per arm."
)
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the latencies to this .svg or .png file.")
@shared.table_options
@click.option("--fresh", is_flag=True, help="Measure everything again, even if the store has it; the network is kept.")
@shared.until_clear_options
@shared.statistics_options
@shared.store_option
@shared.json_option
@shared.debug_option
def command(what: str, store_path: Path, as_json: bool, debug: bool, **given: Any) -> int:
    """Measure a task's trained network, or a model of your own, under a scenario of MLPerf's LoadGen or DAWNBench's.

    \b
      levelbench infer fashion-mnist --scenario single-stream
      levelbench infer digits --scenario server --qps 200 --bound 15ms --audit
      levelbench infer digits --scenario offline --batch 256 --framework torch,onnxruntime
      levelbench infer model.onnx --data examples.npz --price-per-hour 3.06
      levelbench infer code-lm --recipe llama --generate 32

    If the store has no trained network, the recipe is trained once and the network is kept. Exits with 1 if a rule of
    the scenario, the quality or an audit fails, with 4 if an audit is inconclusive. The same command resumes: finished
    processes are not repeated.
    """
    from levelbench.cli.progress_line import ProcessProgress, outcome_remark
    from levelbench.cli.watching import measure
    from levelbench.experiments.inference.processes import InferenceBenchmarks
    from levelbench.records.inference_summary import summarise_inference

    _check(given)
    until = shared.until_clear(given, "processes")
    # Before a network is trained in vain.
    shared.need_two(until, len({each.strip() for each in (given["frameworks"] or "one").split(",")}))
    specifications, folder = _specifications(what, store_path, as_json, given)
    price, demand = _price(given), _demand(given)

    def title(found: InferenceSpecification) -> str:
        return f"{found.title}, {found.scenario.name} on {found.arm.title}"

    def conclude(plan: InferencePlan, records: dict[Place, InferenceRecord]) -> Made:
        (arms,) = plan.arranged(records)
        return summarise_inference(arms, given["level"], given["margin"], price, demand), arms

    def judge(made: Made) -> tuple[list[tuple[str, Verdict]], str]:
        named = zip(specifications, made[0].entries, strict=True)
        return [(each.arm.title, entry.verdict) for each, entry in named if entry.verdict is not None], ""

    summary, arms = measure(
        InferenceBenchmarks(store_path, folder, effect=None if until is None else until.effect),
        specifications,
        given["processes"],
        folder=store_path / "inference",
        first_lines=_busy,
        watch=lambda plan: ProcessProgress(plan, title, outcome_remark),
        conclude=conclude,
        judge=judge,
        until=until,
        fresh=given["fresh"],
        as_json=as_json,
    )
    _show(summary, arms, as_json, given)
    return _code(summary) or shared.code_until_clear(until, judge((summary, arms)))


def _check(given: dict[str, Any]) -> None:
    """Refuse what can be refused without loading a network."""
    from levelbench.cli.infer_words import scenario_settings
    from levelbench.report.drawing import check_ending

    shared.check_statistics(given["margin"], given["level"])
    if given["processes"] < 1:
        found = "there must be at least one process"
        raise UsageError(
            f"-n {given['processes']}", found, "give a number of 1 or more; six processes give an interval"
        )
    if not 0 < given["quality_share"] <= 1:
        raise UsageError(
            f"--quality-share {given['quality_share']:g}",
            "it is not a share above 0 and up to 1",
            "give a share, such as --quality-share 0.99",
        )
    price = given["price_per_hour"]
    if price is not None and not 0 < price < float("inf"):
        raise UsageError(
            f"--price-per-hour {price:g}",
            "impossible price: it must be above zero",
            "give a price, such as --price-per-hour 3.06",
        )
    if given["price_source"] is not None and price is None:
        raise UsageError("--price-source", "no price is given", "add --price-per-hour")
    scenario = scenario_settings(given)
    if given["prompt"] is not None and given["generate"] is None:
        raise UsageError(f"--prompt {given['prompt']}", "no tokens are generated", "add --generate 32")
    if given["generate"] is not None and scenario.find_peak:
        found = "the times of tokens belong to one rate, and the search tries many"
        raise UsageError("--generate with --find-peak", found, "give a rate: --qps 2")
    if given["plot"] is not None:
        check_ending(given["plot"])
        if find_spec("matplotlib") is None:
            raise MissingError(
                f"--plot {given['plot']}", "matplotlib is not installed", 'pip install "levelbench[plot]"'
            )
    shared.check_writable(given["csv_path"], given["markdown_path"], given["plot"])


def _specifications(
    what: str, store: Path, as_json: bool, given: dict[str, Any]
) -> tuple[list[InferenceSpecification], Path | None]:
    """What each arm measures, and the folder of the task's data; trains the network if the store has none."""
    from levelbench.cli.infer_words import foreign, frameworks_of, is_task, scenario_settings
    from levelbench.records.inference import InferenceSpecification

    if given["frameworks"] is not None:
        # Before a network is trained for a framework that is not installed.
        frameworks_of(given["frameworks"], given["device"], None, "")
    if is_task(what):
        from levelbench.cli.infer_words import task_model

        found = task_model(what, store, as_json, given)
        model, data, folder, fixed, default = found.model, found.data, found.folder, None, found.framework
    else:
        _refuse_training(given)
        mine = foreign(what, given["data"], given["labels"], given["sizes"], given["target_accuracy"], given["trial_s"])
        model, data, folder, fixed, default = mine.model, mine.data, None, mine.batch, _first_framework(given["device"])
    scenario = scenario_settings(given, fixed)
    common = {"preprocessing": given["preprocessing"], "seed": given["seed"], "audit": given["audit"]}
    title = f"{model.task}[{model.recipe}]" if model.kind == "task" else model.name
    arms = frameworks_of(given["frameworks"], given["device"], given["threads"], default)
    made = [InferenceSpecification(title, model, data, scenario, arm, **common) for arm in arms]
    return (made if given["generate"] is None else _generating(made, store, folder, given)), folder


def _generating(
    made: list[InferenceSpecification], store: Path, folder: Path | None, given: dict[str, Any]
) -> list[InferenceSpecification]:
    """The same with continuations as answers."""
    from msgspec.structs import replace

    from levelbench.experiments.inference.subject import generation_of, make_subject

    scenario = made[0].scenario
    if scenario.name == "multi-stream" and scenario.batch != scenario.samples_per_query:
        asked = f"--generate with batches of {scenario.batch}"
        found = f"a query has {scenario.samples_per_query} prompts, which are to be continued at once"
        raise UsageError(asked, found, "leave --batch out, or give as many --samples-per-query")
    wanted = generation_of(make_subject(made[0], store, folder), given["generate"], given["prompt"])
    return [replace(each, generation=wanted) for each in made]


def _refuse_training(given: dict[str, Any]) -> None:
    for option in ("recipe", "run_word", "train_seed"):
        if given[option] is not None:
            word = f"--{option.removesuffix('_word').replace('_', '-')}"
            raise UsageError(f"{word} with a model", "it was trained elsewhere", "leave it out, or give a task")


def _first_framework(device: str) -> str:
    """The default framework for a user's model: ONNX Runtime, if it is installed."""
    from levelbench import plugins
    from levelbench.operators.frameworks import load_framework

    known = plugins.names("framework")
    order = ("onnxruntime", "torch", "jax", "numpy")
    return next((name for name in order if name in known and load_framework(name).lacks(device) is None), "numpy")


def _price(given: dict[str, Any]) -> Any:
    from levelbench.records.inference_summary import Price

    per_hour = given["price_per_hour"]
    return None if per_hour is None else Price(per_hour, given["price_source"] or "")


def _demand(given: dict[str, Any]) -> Any:
    from levelbench.records.inference_summary import Demand

    return Demand(given["quality_share"], given["target_accuracy"])


def _busy(plan: InferencePlan) -> list[str]:
    busy = os.getloadavg()[0] if plan.to_go and hasattr(os, "getloadavg") else 0.0
    return [f"the machine is busy (load {busy:.1f}): latencies will be measured too long"] if busy > 1.0 else []


def _show(summary: InferenceSummary, arms: list[list[InferenceRecord]], as_json: bool, given: dict[str, Any]) -> None:
    from levelbench.cli.as_json import inference_json
    from levelbench.report.inference import inference_lines, inference_table, write_inference

    table, lines = inference_table(summary), inference_lines(summary)

    def write() -> dict[str, str]:
        written = shared.write_tables(given, [table], lines)
        return (
            written if given["plot"] is None else written | {"plot": str(write_inference(summary, arms, given["plot"]))}
        )

    shared.present([table], lines, lambda: inference_json(summary, arms), write, as_json=as_json)


def _code(summary: InferenceSummary) -> int:
    """1 if a rule, the quality or an audit failed; else 4 if an audit is inconclusive."""
    bad = [
        not each.valid or each.quality.kept is False or any(audit.passed is False for audit in each.audits)
        for each in summary.entries
    ]
    unclear = any(audit.passed is None for each in summary.entries for audit in each.audits)
    return 1 if any(bad) else 4 if unclear else 0
