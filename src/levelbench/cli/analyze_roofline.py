"""``levelbench analyze roofline``: runs, a network or a task under this machine's roofs, measured beside the work."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.analysis.roofline import Roofline
    from levelbench.experiments.profiling import ProfileJob
    from levelbench.experiments.roofline import RooflineJob
    from levelbench.records import RunGroup

__all__ = ["roofline"]

_CANNOT_TELL = 4
_MODELS = (".onnx", ".onnxtxt", ".onnxtext", ".onnxjson", ".textproto", ".txtpb", ".pb")


@click.command("roofline", short_help="FLOP/s and bytes/s under this machine's measured roofs.")
@click.argument("subject", metavar="RUNS|MODEL|TASK")
@click.option(
    "-n", "--processes", type=click.IntRange(min=1), default=6, show_default=True, help="Number of processes."
)
@click.option("--framework", help="Framework of a MODEL or TASK; default: one that is installed.")
@click.option("--batch", help="Batch of a MODEL.  [default: 1]")
@click.option("--size", "sizes", multiple=True, help="Open size of a MODEL: length=128.")
@click.option("--option", "settings", multiple=True, help="Option of a network in the zoo: classes=10.")
@click.option("--task-file", type=click.Path(path_type=Path), help="File of the task of RUNS.")
@click.option("--budget", type=float, default=3.0, show_default=True, help="Seconds of work and roofs in a process.")
@shared.data_option
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the roofline to this .svg or .png file.")
@shared.table_options
@shared.store_option
@shared.answer_options
def roofline(subject: str, store_path: Path, as_json: bool, **given: Any) -> int:
    """Measure operators, passes and steps (or an inference) beside the roofs of this machine, and give the shares.

    A MODEL is a network of the zoo, an ONNX file or FILE.py:function. A TASK is trained for a few steps. RUNS, selected
    as everywhere, give the recipe, and their recorded steps stand beside those of now. Roofs are matrix products in
    each precision, and reading from each level of the memory.

    \b
      levelbench analyze roofline 'fashion-mnist[framework=torch]' --plot roofline.svg
      levelbench analyze roofline resnet18 --framework torch --batch 8

    A result above its roof has no share: the line says which of the two is wrong. Exits with 4 if no share is known.
    """
    from levelbench.analysis.roofline import place_under_roofs
    from levelbench.cli.progress_line import say_turns
    from levelbench.experiments.roofline import roofline_profiles
    from levelbench.report.roofline import places_table, roofs_table, write_under_roofs

    shared.check_statistics(0.0, given["level"])
    shared.check_plot(given["plot"])
    shared.check_writable(given["csv_path"], given["markdown_path"], given["plot"])
    if given["budget"] <= 0:
        raise UsageError(f"--budget {given['budget']:g}", "it leaves no time to measure", "give seconds, such as 3")
    title, job, group = _job(subject, store_path, given)

    profiles = roofline_profiles(job, given["processes"], say_turns("process"))
    found = place_under_roofs(title, profiles, given["level"])
    if group is not None:
        found = _with_recorded(found, group)
    tables = [places_table(found).without_empty(), roofs_table(found)]
    wrong = [f"{each.label}: {each.reason}" for each in found.places if each.wrong]
    lines = [*wrong, *found.lacks]

    def write() -> dict[str, str]:
        written = shared.write_tables(given, tables, lines, title="Roofline")
        drawn = {} if given["plot"] is None else {"plot": str(write_under_roofs(found, given["plot"]))}
        return {**written, **drawn}

    shared.present(tables, lines, lambda: {**asdict(found), "lines": lines}, write, as_json=as_json, apart=False)
    return 0 if any(each.share is not None for each in found.places) else _CANNOT_TELL


def _job(subject: str, store_path: Path, given: dict[str, Any]) -> tuple[str, RooflineJob, RunGroup | None]:
    """What to measure, its title, and the runs if ``subject`` has some."""
    from levelbench.experiments.roofline import RooflineJob
    from levelbench.networks import zoo
    from levelbench.records.selection import parse_item

    if subject in zoo.names() or ".py:" in subject or subject.endswith(_MODELS):
        return _network(subject, given)
    if given["batch"] or given["sizes"] or given["settings"]:
        do = "give settings of a recipe in brackets"
        raise UsageError(f"--batch, --size or --option with {subject}", "they are a network's", do)
    group = _runs(subject, store_path)
    if group is not None:
        job = _of_runs(subject, group, given)
        return _step_title(job), RooflineJob(step=job, budget_s=given["budget"]), group
    from levelbench.experiments.profiling import ProfileJob
    from levelbench.experiments.request import Options, resolve

    reference, settings = parse_item(subject)
    arm = resolve(reference, settings, Options(framework=given["framework"], data=given["data"]))
    specification = arm.specification
    step = ProfileJob(arm.reference, specification, "", 0, None if given["data"] is None else str(given["data"]))
    return _step_title(step), RooflineJob(step=step, budget_s=given["budget"]), None


def _step_title(job: ProfileJob) -> str:
    specification = job.specification
    return f"a training step of {specification.task}[recipe={specification.recipe}] on {specification.framework}"


def _network(subject: str, given: dict[str, Any]) -> tuple[str, RooflineJob, None]:
    from levelbench.cli.network_words import make_arms, make_cases, name_network
    from levelbench.experiments.roofline import RooflineJob
    from levelbench.records.networks import NetworkSpecification

    named = name_network(subject, given["settings"])
    (case, *more) = make_cases(named, given["batch"], given["sizes"], ())
    (arm, *_) = make_arms(named, given["framework"], "cpu", (), False)
    if more:
        raise UsageError(f"--batch {given['batch']}", "a roofline is of one batch", "give one, such as 8")
    specification = NetworkSpecification(named.name, case, arm)
    title = f"{case.title} on {arm.title}"
    return title, RooflineJob(network=specification, budget_s=given["budget"]), None


def _runs(subject: str, store_path: Path) -> RunGroup | None:
    """The runs that ``subject`` selects, of one specification; ``None`` if it names a task without such runs."""
    from levelbench import plugins
    from levelbench.records import group_runs
    from levelbench.records.summary import in_order

    name = subject.partition("[")[0]
    is_task = name.endswith(".py") or name in plugins.names("task")
    if name.endswith(".py") or (is_task and not store_path.exists()):
        return None
    store = shared.open_store(store_path)
    groups = in_order(group_runs(store.summaries(subject) if is_task else shared.readable_runs(store, (subject,))))
    if len(groups) == 1:
        return groups[0]
    if is_task:
        return None
    found = f"it selects runs of {len(groups)} specifications"
    raise UsageError(f"a roofline of {subject}", found, "select one: task[framework=...]")


def _of_runs(subject: str, group: RunGroup, given: dict[str, Any]) -> ProfileJob:
    """The step of the runs' recipe; refused if it cannot be made again here."""
    from levelbench.experiments.profiling import ProfileJob, why_no_profile

    run = group.runs[0]
    if given["framework"] not in (None, run.framework):
        do = f"{group.specification.task}[framework={given['framework']}]"
        raise UsageError(f"--framework {given['framework']}", f"the runs of {subject} are of {run.framework}", do)
    reference = str(given["task_file"] or run.task)
    if reason := why_no_profile(run, reference):
        raise UsageError(f"a roofline of {group.label}", reason, "or name a task, which is measured from scratch")
    source = "" if run.settings_read else run.source_digest
    data = None if given["data"] is None else str(given["data"])
    return ProfileJob(reference, group.specification, source, run.seed, data)


def _with_recorded(found: Roofline, group: RunGroup) -> Roofline:
    """The roofline with the recorded steps of the runs beside the step of now."""
    from levelbench.analysis.roofline import with_recorded

    times = [run.time_per_step_s for run in group.runs if run.time_per_step_s]
    if not times:
        return replace(found, lacks=(*found.lacks, "the runs record no time of their steps"))
    return with_recorded(found, times, f"{len(times)} run{'s' * (len(times) > 1)}")
