"""Ten training programs of other people's making, timed and scored side by side.

    pip install lightning transformers accelerate keras flax optax scikit-learn lightgbm xgboost-cpu
    python benchmarks/programs [-n 5] [--markdown FILE] [--picture docs/evidence/programs.svg]

Each program trains on the digits. ``levelbench time`` starts them in turns, gives each the held-out inputs once it has
said that its training ended, and scores its predictions. The phases are those that the program's own
``levelbench.track`` has recorded. A program whose packages are not installed is left out, and named.
"""

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np
from matplotlib.figure import Figure

from levelbench.records import read_record
from levelbench.report.drawing import INK, draw, plain_axes
from levelbench.training import datasets

HERE = Path(__file__).parent
PROGRAMS = {
    "plain_torch.py": ["torch"],
    "compiled_torch.py": ["torch"],
    "with_lightning.py": ["lightning"],
    "with_transformers.py": ["transformers", "accelerate"],
    "with_keras.py": ["keras", "jax"],
    "with_flax.py": ["flax", "optax"],
    "with_sklearn.py": ["sklearn"],
    "with_lightgbm.py": ["lightgbm"],
    "with_xgboost.py": ["xgboost"],
}


def commands(folder: Path) -> dict[str, str]:
    """The command of each program that can run here, by its file's name."""
    found = {}
    for name, needed in PROGRAMS.items():
        if missing := [each for each in needed if importlib.util.find_spec(each) is None]:
            print(f"left out: {name} needs {', '.join(missing)}", file=sys.stderr)
        else:
            found[name] = f"{shlex.quote(sys.executable)} {name}"
    compiler = shutil.which("g++")
    if compiler is None:
        print("left out: native.cpp needs g++", file=sys.stderr)
        return found
    native, data = folder / "native", folder / "train.csv"
    subprocess.run([compiler, "-O2", "-std=c++17", HERE / "native.cpp", "-o", native], check=True)
    train = datasets.digits.load().train
    rows = np.column_stack([train.labels, train.inputs.reshape(len(train.labels), -1)])
    np.savetxt(data, rows, delimiter=",", fmt=["%d"] + ["%.6g"] * (rows.shape[1] - 1))
    return {**found, "native.cpp": f"{native} {data} {{seed}}"}


def lines_of(name: str) -> int:
    """How many lines of a program are levelbench's."""
    return sum("levelbench" in line or "run." in line for line in (HERE / name).read_text().splitlines()[1:])


def measure(wanted: dict[str, str], count: int, store: Path) -> dict:
    """What `levelbench time --json` says of the commands."""
    first, *others = wanted.values()
    words = [sys.executable, "-m", "levelbench", "time", first, *(word for each in others for word in ("--vs", each))]
    words += ["--target", "accuracy=0.93", "--held-out", "digits", "--reveal-inputs", "after", "--task", "ten-programs"]
    words += ["-n", str(count), "--store", str(store), "--fail-on", "never", "--json"]
    environment = {**os.environ, "LEVELBENCH_STORE": str(store / "own"), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(words, cwd=HERE, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Tracked:
    """What a program's own ``levelbench.track`` has recorded: mean seconds of a run, and of each phase in it."""

    wall_s: float
    phases_s: dict[str, float]

    def words(self) -> str:
        """The shares of the phases, the largest first, and what they sum to."""
        shares = sorted(((spent / self.wall_s, name) for name, spent in self.phases_s.items()), reverse=True)
        shown = ", ".join(f"{name} {share:.0%}" for share, name in shares if share >= 0.005)
        return f"{shown} (sum {sum(share for share, _ in shares):.1%} of the wall time)"


def tracked(store: Path) -> dict[str, Tracked]:
    """By program."""
    records = [read_record(path) for path in store.rglob("*.jsonl")]
    found = {}
    for recipe in {each.header.specification.recipe for each in records}:
        ends = [each.end for each in records if each.header.specification.recipe == recipe and each.end]
        phases = {name: sum(end.phases_ns.get(name, 0) for end in ends) / len(ends) / 1e9 for name in ends[0].phases_ns}
        found[f"{recipe}.py"] = Tracked(sum(end.t_ns for end in ends) / len(ends) / 1e9, phases)
    return found


COLOURS = {
    "start and imports": "#c9ced6",
    "prepare": "#999999",
    "data": "#56B4E9",
    "forward": "#0072B2",
    "backward": "#D55E00",
    "update": "#CC79A7",
    "train": "#009E73",
    "evaluate": "#F0E442",
    "other": "#1b1f24",
}


def picture(path: Path, times: dict[str, list[float]], own: dict[str, Tracked]) -> None:
    """A bar for each program: its phases, what came before them, and a dot for each run."""

    def onto(figure: Figure) -> None:
        axes = figure.subplots()
        for at, (name, each) in enumerate(times.items()):
            if name in own:
                parts = {"start and imports": max(0.0, mean(each) - own[name].wall_s), **own[name].phases_s}
            else:
                parts = {"train": mean(each)}
            left = 0.0
            for phase, colour in COLOURS.items():
                axes.barh(at, parts.get(phase, 0.0), left=left, color=colour, label=None if at else phase)
                left += parts.get(phase, 0.0)
            axes.plot(each, [at] * len(each), "o", color="white", markeredgecolor=INK, markersize=4)
        plain_axes(axes, "x")
        axes.set_yticks(range(len(times)), list(times))
        axes.invert_yaxis()
        axes.set_xlabel("seconds from the start of the process to the end of its training (dots: single runs)")
        figure.legend(loc="outside upper center", ncols=5, frameon=False)

    draw(path, "programs", (7.2, 4.6), onto)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=5, help="runs of each program")
    parser.add_argument("--markdown", type=Path, help="write the table there, too")
    parser.add_argument("--picture", type=Path, help="draw it there: .svg or .png")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        wanted = commands(Path(folder))
        found = measure(wanted, options.n, store)
        own = tracked(store / "own")
    verdicts = {each["b"]: each["verdict"] for each in found["comparisons"]}
    rows = [
        "| program | lines | reached | scored accuracy | seconds to the end of training | against the first | phases |"
    ]
    rows.append("|---|---|---|---|---|---|---|")
    times = {}
    for (name, command), group in zip(wanted.items(), found["groups"], strict=True):
        assert command.split()[-1 if command.endswith(".py") else 0] in group["specification"]["settings"]["command"]
        runs = [run for run in found["runs"] if run["key"] == group["key"]]
        scores = [run["quality"]["validation"] for run in runs]
        times[name] = [run["time_to_accuracy_s"] for run in runs if run["reached"]]
        time = group["time_to_accuracy_s"]
        shown, verdict = "–", verdicts.get(group["label"])
        if time is not None:
            shown = f"{time['value']:.3g}"
        judged = "–" if verdict is None else verdict["kind"]
        if verdict is not None and verdict["low"] is not None and verdict["high"] is not None:
            judged += f" {verdict['ratio']:.3g} [{verdict['low']:.3g}, {verdict['high']:.3g}]"
        phases = own[name].words() if name in own else "none: no line of levelbench"
        reached = f"{group['reached']}/{group['n']}"
        rows.append(
            f"| {name} | {lines_of(name)} | {reached} | {np.mean(scores):.3f} | {shown} | {judged} | {phases} |"
        )
    print("\n".join(rows))
    if options.markdown is not None:
        options.markdown.write_text("\n".join(rows) + "\n")
    if options.picture is not None:
        picture(options.picture, times, own)


if __name__ == "__main__":
    main()
