"""Ten training programs of other people's making, timed and scored side by side.

    pip install lightning transformers accelerate keras flax optax scikit-learn lightgbm xgboost-cpu
    python benchmarks/programs [-n 5] [--markdown FILE] [--picture docs/evidence/programs.svg]

Each program trains on the digits. ``levelbench time`` starts them in turns, gives each the held-out inputs once it has
said that its training ended, scores its predictions, and records the phases that it reports. A program whose packages
are not installed is left out, and named.
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

from levelbench.measure.timeline import Phase
from levelbench.records import Record, read_record
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
    found, data = {}, folder / "digits.csv"
    digits = datasets.digits.load()
    labels = np.concatenate([digits.train.labels, digits.validation.labels])
    images = np.concatenate([digits.train.inputs, digits.validation.inputs]).reshape(len(labels), -1)
    np.savetxt(data, np.column_stack([labels, images]), delimiter=",", fmt=["%d"] + ["%.6g"] * images.shape[1])
    for name, needed in PROGRAMS.items():
        if missing := [each for each in needed if importlib.util.find_spec(each) is None]:
            print(f"left out: {name} needs {', '.join(missing)}", file=sys.stderr)
        else:
            found[name] = f"{shlex.quote(sys.executable)} {name} {data} {{seed}}"
    compiler = shutil.which("g++")
    if compiler is None:
        print("left out: native.cpp needs g++", file=sys.stderr)
        return found
    native = folder / "native"
    subprocess.run([compiler, "-O2", "-std=c++17", HERE / "native.cpp", "-o", native], check=True)
    return {**found, "native.cpp": f"{native} {data} {{seed}}"}


def lines_of(name: str) -> int:
    """How many lines of a program are levelbench's."""
    return sum("levelbench" in line for line in (HERE / name).read_text().splitlines()[1:])


def measure(wanted: dict[str, str], count: int, store: Path) -> dict:
    """What `levelbench time --json` says of the commands."""
    first, *others = wanted.values()
    words = [sys.executable, "-m", "levelbench", "time", first, *(word for each in others for word in ("--vs", each))]
    words += ["--target", "accuracy=0.93", "--held-out", "digits", "--reveal-inputs", "after", "--task", "ten-programs"]
    words += ["-n", str(count), "--store", str(store), "--fail-on", "never", "--json"]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(words, cwd=HERE, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Phases:
    """Mean seconds of each phase of a program's runs, and of all of it on a second clock."""

    seconds: dict[str, float]
    witnessed_s: float

    def words(self) -> str:
        """The shares of the phases, the largest first, and what they sum to."""
        whole_s = sum(self.seconds.values())
        shares = sorted(((spent / whole_s, name) for name, spent in self.seconds.items()), reverse=True)
        shown = ", ".join(f"{name} {share:.0%}" for share, name in shares if share >= 0.005)
        return f"{shown} (sum {whole_s / self.witnessed_s:.2%} of the wall time)"


def phases_of(runs: list[dict], store: Path) -> Phases:
    """Up to the end of the training, of ``runs`` in ``store``."""
    records = [read_record(path) for path in store.rglob("*.jsonl")]
    records = [each for each in records if each.header.id in {run["id"] for run in runs}]
    assert len(records) == len(runs)
    ends = [each.evaluations[-1].phases_ns for each in records]
    seconds = {
        phase.label: mean(end.get(phase.label, 0) for end in ends) / 1e9
        for phase in Phase
        if any(phase.label in end for end in ends)
    }
    return Phases(seconds, mean(witnessed_s(each) for each in records))


def witnessed_s(record: Record) -> float:
    """Seconds from the start of the run to its last evaluation, on the second clock that its record has."""
    seen = {each.evaluations: each.second_ns for each in record.end.witness.sights[:-1]}
    # Both are read before and after the run's own clock, which starts right after the first time.
    return (mean(seen[len(record.evaluations)]) - seen[0][1]) / 1e9


COLOURS = {
    "prepare": "#c9ced6",
    "compile": "#882255",
    "data": "#56B4E9",
    "forward": "#0072B2",
    "backward": "#D55E00",
    "update": "#CC79A7",
    "train": "#009E73",
    "evaluate": "#F0E442",
    "other": "#1b1f24",
}


def picture(path: Path, times: dict[str, list[float]], phases: dict[str, Phases]) -> None:
    """A bar for each program, of its phases, and a dot for each run."""

    def onto(figure: Figure) -> None:
        axes = figure.subplots()
        for at, (name, each) in enumerate(times.items()):
            parts = phases[name].seconds
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
        runs = {
            name: [run for run in found["runs"] if run["key"] == group["key"]]
            for name, group in zip(wanted, found["groups"], strict=True)
        }
        phases = {name: phases_of(each, store) for name, each in runs.items()}
    verdicts = {each["b"]: each["verdict"] for each in found["comparisons"]}
    columns = ["program", "lines of levelbench", "reached", "scored accuracy", "seconds to the end of training"]
    columns += ["against the first", "phases"]
    rows = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    times = {}
    for (name, command), group in zip(wanted.items(), found["groups"], strict=True):
        assert command in group["specification"]["settings"]["command"]
        scores = [run["quality"]["validation"] for run in runs[name]]
        times[name] = [run["time_to_accuracy_s"] for run in runs[name] if run["reached"]]
        time = group["time_to_accuracy_s"]
        shown, verdict = "–", verdicts.get(group["label"])
        if time is not None:
            shown = f"{time['value']:.3g}"
        judged = "–" if verdict is None else verdict["kind"]
        if verdict is not None and verdict["low"] is not None and verdict["high"] is not None:
            judged += f" {verdict['ratio']:.3g} [{verdict['low']:.3g}, {verdict['high']:.3g}]"
        reached = f"{group['reached']}/{group['n']}"
        cells = [name, lines_of(name), reached, f"{np.mean(scores):.3f}", shown, judged, phases[name].words()]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    print("\n".join(rows))
    if options.markdown is not None:
        options.markdown.write_text("\n".join(rows) + "\n")
    if options.picture is not None:
        picture(options.picture, times, phases)


if __name__ == "__main__":
    main()
