"""``levelbench check WHAT``: check operators, networks, optimizers, schemes, engines, tasks with recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from levelbench.cli import options as shared
from levelbench.cli.check_levels import DTYPES, OperatorWords, check_operators
from levelbench.errors import DefinitionError, UsageError

__all__ = ["command"]

_OF_OPERATORS = {
    "only": "--operator",
    "attributes": "--attr",
    "dtypes": "--dtype",
    "heatmap": "--heatmap",
    "runs": "--repeat",
}
_ISOLATED = {"timeout": "--timeout"}
_OF_NETWORKS = {
    "batch": "--batch",
    "sizes": "--size",
    "inputs": "--inputs",
    "tolerance": "--tolerance",
    "gradients": "--no-gradients",
    "operators": "--each-operator",
    "modes": "--mode",
}
_OF_TRAINING = {"recipe": "--recipe", "data": "--data"}
_TIMED = {"seconds": "--seconds"}
_OF_SCHEMES = {"ranks": "--ranks"}
_OF_OPTIMIZERS = {"plot": "--plot"}
_OF_LIKENESS = {"likened": "--is", "options": "--option", "draws": "--draws"}
_SHARED = {"shapes": "--shape", "reference": "--reference", "device": "--device"}
_NO_OPERATOR = "it defines no operator"
_GROUPS = {
    "Operators": " ".join(_OF_OPERATORS | _ISOLATED),
    "Networks": " ".join(_OF_NETWORKS),
    "Comparison with the zoo": " ".join(_OF_LIKENESS),
    "Optimizers, schemes, tasks": " ".join(_OF_TRAINING | _TIMED | _OF_SCHEMES | _OF_OPTIMIZERS),
    "The checks themselves": "tested",
    "Output": "as_json debug",
}
_SOURCES = (".cpp", ".cc", ".cxx")


@click.command("check", cls=shared.Grouped, groups=_GROUPS)
@click.argument("what", required=False)
@shared.several(
    "--framework", "frameworks", default="", help="Frameworks, separated by commas; default: one that runs here."
)
@click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda, cuda:1, ...")
@click.option("--operator", "only", default="", help="Operator in the file, or of an engine; default: all.")
@click.option(
    "--reference", default="", help="FILE.py:function; for a network, a framework; for an optimizer, another one."
)
@click.option("--shape", "shapes", multiple=True, help="Shape of an input: X=8x16 or I=8:int64; default: examples.")
@click.option("--attr", "attributes", multiple=True, help="Attribute of the operator: epsilon=1e-5 or axes=0,1.")
@shared.several(
    "--dtype", "dtypes", default="", help=f"Dtypes, separated by commas: {', '.join(DTYPES)}; default: all supported."
)
@click.option("--heatmap", type=click.Path(path_type=Path), help="Draw the deviation to this .png or .svg file.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of inputs and directions.")
@click.option(
    "--repeat",
    "runs",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    help="Repetitions of a call, to check that the results agree.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds for one operator or optimizer. Network in a file: processor time for a trial if it loops (3).",
)
@click.option("--batch", type=click.IntRange(min=1), default=2, show_default=True, help="Network: number of samples.")
@click.option("--size", "sizes", multiple=True, help="Network: value of an open size, length=16.")
@click.option("--inputs", type=click.Path(path_type=Path), help="Network: .npz file with its inputs by name.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Network: factor on the usual tolerance.",
)
@click.option("--no-gradients", "gradients", flag_value=False, default=True, help="Network: compare outputs only.")
@click.option("--each-operator", "operators", is_flag=True, help="Network: also check each operator alone.")
@click.option("--mode", "modes", multiple=True, help="Network: mode of a framework, torch=compiled.")
@click.option("--is", "likened", default="", help="Network of the zoo that WHAT should be: resnet50.")
@click.option("--option", "options", multiple=True, help="--is: option of that network, classes=10.")
@click.option(
    "--draws",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="--is: times that the model is built, to judge how weights are drawn.",
)
@click.option("--recipe", default="", help="Task: one recipe; default: all in the file.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="LEVELBENCH_DATA",
    help="Task: folder of the dataset; default: $LEVELBENCH_DATA.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Task: time limit for each of two short trainings. Scheme: seconds until a run counts as hung.",
)
@shared.several("--ranks", default="2,3,4", show_default=True, help="Scheme: numbers of ranks, separated by commas.")
@click.option(
    "--self-test",
    "tested",
    is_flag=False,
    flag_value="all",
    metavar="[KIND]",
    help="Check the checks: planted faults and right parts, of one kind or of all.",
)
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Optimizer: draw its divergence to this .png or .svg file."
)
@shared.answer_options
@click.pass_context
def command(context: click.Context, /, what: str | None, as_json: bool, tested: str | None, **given: Any) -> int:
    """Check WHAT: a file that defines operators, an optimizer, a scheme, an engine, a task or recipes; or a name.

    FILE.py:NAME (or .cpp) chooses one of the operators, optimizers, schemes or communicators of a file. A name is that
    of a task, a scheme, a network of the zoo or an optimizer (adam, torch.optim.AdamW).

    Operators (.py, .cpp): forward, gradients, memory, dtypes, shapes, NaN. Networks (.onnx, or a name in the zoo):
    outputs and gradients in each framework compared with the reference, tensor by tensor, and the first operator at
    which they diverge. Optimizers: compared with a reference step by step. Schemes: compared with one process;
    agreement of ranks, traffic, deadlocks, loss of a rank. Communicators: each operation, exactly. Engines: arrays,
    ONNX's node tests, small networks. Tasks and recipes: data, splits, target, determinism, gradients, evaluation,
    whether a batch can be learnt. Operators, optimizers, schemes and communicators run in their own processes, so that
    a crash or a hang is a finding. With --is NAME, a model (FILE.py:build, .onnx) is paired layer by layer with the
    zoo's network of that name: what differs, in words. With --self-test, the checks themselves are checked on planted
    faults and right parts. Exits with 1 if anything is wrong, with 4 if nothing could be judged.
    """
    if tested is not None:
        from levelbench.cli.check_self import check_self

        options = {each.name: each.opts[0] for each in context.command.params if each.name in given}
        options.pop("seed")
        _refuse(context, options, "--self-test checks the checks")
        if what is not None:
            raise UsageError(
                f"check {what} --self-test {tested}", "it checks the checks, not a part", f"leave {what} out"
            )
        return check_self(tested, given["seed"], as_json)
    if what is None:
        do = "name what to check, such as a file; levelbench check --help says what there is"
        raise UsageError("check", "nothing is named", do)
    if given["likened"]:
        from levelbench.cli.check_is import LikenessWords, check_likeness

        others = (
            _OF_OPERATORS | _ISOLATED | _OF_NETWORKS | _OF_TRAINING | _TIMED | _OF_OPTIMIZERS | _OF_SCHEMES | _SHARED
        )
        _refuse(context, {**others, "frameworks": "--framework"}, "--is compares layers on PyTorch")
        return check_likeness(
            what, LikenessWords(given["likened"], given["options"], given["draws"], given["seed"]), as_json
        )
    _refuse(context, _OF_LIKENESS, "there is no --is")
    kind = _kind(what)
    file, only = _in_file(what)
    if kind == "training":
        from levelbench.cli.check_training import TrainingWords, check_training

        without = {name: option for name, option in _SHARED.items() if name != "device"}
        others = _OF_OPERATORS | _ISOLATED | _OF_NETWORKS | _OF_OPTIMIZERS | _OF_SCHEMES | without
        _refuse(context, others, f"{what} holds a task or recipes")
        return check_training(what, _words(TrainingWords, given), as_json)
    if kind == "optimizer":
        return _optimizer(context, what, given, as_json)
    if kind == "scheme":
        from levelbench.cli.check_training import SchemeWords, check_schemes

        others = _OF_OPERATORS | _OF_NETWORKS | _OF_TRAINING | _OF_OPTIMIZERS | _SHARED
        _refuse(context, others, f"{what} holds a scheme" if Path(what).suffix else f"{what} is a scheme")
        return check_schemes(what, _words(SchemeWords, given), as_json)
    if kind == "communicator":
        from levelbench.cli.check_training import SchemeWords, check_communicators

        others = _OF_OPERATORS | _OF_NETWORKS | _OF_TRAINING | _OF_OPTIMIZERS | _SHARED
        _refuse(context, {**others, "frameworks": "--framework", "seed": "--seed"}, f"{file} holds a communicator")
        return check_communicators(Path(file), only, _words(SchemeWords, given), as_json)
    if kind == "engine":
        from levelbench.cli.check_levels import check_engines

        kept = {"only": "--operator"}
        words = {name: option for name, option in (_OF_OPERATORS | _ISOLATED).items() if name not in kept}
        without = {name: option for name, option in _SHARED.items() if name != "device"}
        others = words | _OF_NETWORKS | _OF_TRAINING | _TIMED | _OF_OPTIMIZERS | _OF_SCHEMES | without
        _refuse(context, {**others, "frameworks": "--framework", "seed": "--seed"}, f"{what} holds an engine")
        return check_engines(Path(what), given["device"], given["only"], as_json)
    if kind == "network":
        from levelbench.cli.check_levels import NetworkWords, check_model

        others = _OF_OPERATORS | _OF_TRAINING | _TIMED | _OF_OPTIMIZERS | _OF_SCHEMES
        _refuse(context, others, f"{what} is a network")
        limit = given["timeout"] if _is_given(context, "timeout") else None
        return check_model(what, _words(NetworkWords, {**given, "trial_s": limit}), as_json)
    others = _OF_NETWORKS | _OF_TRAINING | _TIMED | _OF_OPTIMIZERS | _OF_SCHEMES
    _refuse(context, others, f"{what} holds operators")
    words = _words(
        OperatorWords, {**given, "frameworks": given["frameworks"] or "numpy", "only": only or given["only"]}
    )
    try:
        return check_operators(Path(file), words, as_json)
    except DefinitionError as error:
        if kind is not None:
            raise
        # Nothing says that the file was meant to define operators.
        asked, found, do = error.asked.replace("the operator file", "the file"), error.found, error.do
        if found == _NO_OPERATOR:
            found = f"{_NO_OPERATOR}, optimizer, scheme, engine, task or recipe"
            do = _instead(Path(file))
        raise DefinitionError(asked, found, do) from error


def _instead(path: Path) -> str:
    """What to do with a file that defines nothing that can be checked."""
    from levelbench.training.probes.contents import extends

    own = "write it as a CustomOperator (levelbench new operator my_operator)"
    if extends(path, "torch.autograd.Function"):
        return f"check the Function with torch.autograd.gradcheck, or {own}"
    if extends(path, "torch.nn.Module"):
        return f"{own}, or export the Module to .onnx and check that"
    return "define one; levelbench check --help says what there is"


def _optimizer(context: click.Context, what: str, given: dict[str, Any], as_json: bool) -> int:
    from levelbench.cli.check_training import check_optimizers

    without = {name: option for name, option in _SHARED.items() if name != "reference"}
    others = _OF_OPERATORS | _OF_NETWORKS | _OF_TRAINING | _TIMED | _OF_SCHEMES | without
    file, name = _in_file(what)
    path = Path(file) if Path(file).suffix == ".py" else None
    _refuse(context, others, f"{path} holds an optimizer" if path else f"{what} is an optimizer")
    return check_optimizers(
        path,
        only=name if path else what,
        reference=given["reference"],
        framework=given["frameworks"],
        plot=given["plot"],
        seed=given["seed"],
        as_json=as_json,
        timeout=given["timeout"],
    )


def _words(of: type[Any], given: dict[str, Any]) -> Any:
    """The options that a kind of check takes."""
    return of(**{name: given[name] for name in of.__dataclass_fields__})


def _kind(what: str) -> str | None:
    """The kind of thing to check: operators, network, optimizer, ...; ``None`` for a .py file that does not say."""
    bare, name = _in_file(what)
    if Path(bare).suffix in (".py", *_SOURCES):
        _require_file(what, Path(bare))
    if Path(bare).suffix == ".py":
        from levelbench.training.probes.contents import kind_of

        return kind_of(Path(bare)) or ("scheme" if name else None)
    if Path(bare).suffix in _SOURCES:
        return "operators"
    from levelbench import plugins

    if bare in plugins.names("task"):
        return "training"
    if bare in plugins.names("scheme"):
        return "scheme"
    from levelbench.training.optimizers.wrappers import NATIVE
    from levelbench.training.probes.optimizer_references import RULES

    rooms = {each.rpartition(".")[0] for each in NATIVE}
    if bare.lower() in RULES or (bare.rpartition(".")[0] in rooms and not Path(bare).exists()):
        return "optimizer"
    return "network" if _is_network(what) else "operators"


def _in_file(what: str) -> tuple[str, str]:
    """``FILE.py:NAME[settings]`` or ``FILE.cpp:NAME`` as the file and the name; else ``what`` without settings."""
    bare = what.partition("[")[0]
    for suffix in (".py", *_SOURCES):
        file, colon, name = bare.partition(f"{suffix}:")
        if colon:
            return f"{file}{suffix}", name
    return bare, ""


def _is_network(what: str) -> bool:
    """Whether it is a model file or a name in the zoo; ``UnknownNameError`` if it is not a file either."""
    path = Path(what)
    if path.suffix or path.exists() or len(path.parts) > 1:
        _require_file(what, path)
        return bool(path.suffix)
    from levelbench.networks import zoo

    zoo.entry(what)
    return True


def _require_file(what: str, path: Path) -> None:
    """``UsageError`` if ``path`` is a folder or does not exist."""
    if path.is_dir():
        raise UsageError(f"check {what}", f"{path} is a folder", "give one of the files in it")
    if not path.exists():
        raise UsageError(
            f"check {what}", "there is no such file", "check the path, or give a name from levelbench list"
        )


def _refuse(context: click.Context, names: dict[str, str], why: str) -> None:
    """Refuse options that were given but do not apply here."""
    for name, option in names.items():
        if _is_given(context, name):
            raise UsageError(option, f"{why}, and the option does not apply to it", "leave it out")


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
