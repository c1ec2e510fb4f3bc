"""Run the commands of docs/gallery/index.md in an empty folder, and keep what they write under docs/gallery/.

    python tools/gallery.py dawn-bench-entries

The argument is a copy of DAWNBench's entries. Of these only facts are kept: e-mail addresses, and fields that authors
filled with words of their own, are removed before the board is built. The timeline is drawn from the trace.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from levelbench.report.drawing import draw

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
RUN = "levelbench run 'digits[framework=numpy]' 'digits[framework=torch]' -n 5"
IMPORT = "levelbench board import dawnbench dawn-bench-entries/CIFAR10 -o leaderboard --no-doubts"
SUBMIT = "levelbench board submit digits --author levelbench --hardware '2 cores of a virtual machine' -o leaderboard"
EXHIBITS = {
    "report.html": [RUN, "levelbench report digits -o report.html"],
    "timeline.svg": [RUN, "levelbench show 'digits[seed=0]' --trace timeline.json"],
    "timeline.json": [RUN, "levelbench show 'digits[seed=0]' --trace timeline.json"],
    "roofline.svg": [
        "levelbench operator --suite deepbench-gemm --limit 5 --framework numpy,torch,onnxruntime"
        " -n 3 --budget-s 0.5 --plot roofline.svg"
    ],
    "board": [RUN, IMPORT, SUBMIT, "levelbench board build leaderboard -o board"],
}
"""What the gallery shows, and the commands that make each, in their order."""


def keep_facts(leaderboard: Path) -> None:
    """Remove from DAWNBench's entries what is not a fact of the run: addresses and the authors' own words."""
    for path in leaderboard.glob("**/*.json"):
        entry = json.loads(path.read_text())
        if entry.get("origin", {}).get("format") == "dawnbench":
            entry.pop("settings", None)
            entry["origin"].pop("fields", None)
            entry["author"].pop("email", None)
            path.write_text(json.dumps(entry, indent=2, ensure_ascii=False) + "\n")


def draw_timeline(trace: Path, picture: Path) -> None:
    """The phases of each run in a trace, one row a run, evaluations as ticks below it."""
    events = json.loads(trace.read_text())["traceEvents"]
    names = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
    slices = [each for each in events if each["ph"] == "X" and each["tid"] == 1]
    ends = {(each["pid"], each["ts"] + each["dur"]) for each in slices if each["name"].startswith("to evaluation")}
    spans: dict[str, list[tuple[int, float, float]]] = {}
    for each in slices:
        if not each["name"].startswith("to "):
            spans.setdefault(each["name"], []).append((each["pid"], each["ts"] / 1e3, each["dur"] / 1e3))

    def onto(figure: Any) -> None:
        axes = figure.add_subplot()
        for phase, parts in spans.items():
            rows, begins, lengths = zip(*parts, strict=True)
            axes.barh(rows, lengths, left=begins, height=0.5, label=phase)
        axes.plot([at / 1e3 for _, at in ends], [row + 0.32 for row, _ in ends], "k^", markersize=4, label="evaluation")
        axes.set_yticks(list(names), [name.replace("[", "\n[", 1) for name in names.values()])
        axes.invert_yaxis()
        axes.set_xlabel("time since the start of the run, ms")
        figure.legend(loc="outside upper center", ncols=5, frameon=False)

    draw(picture, "timeline", (8, 3.4), onto)


def refuse_traces_of_the_machine(folder: Path, work: Path) -> None:
    """Exit if a file names the machine, the user's home or the folder that the commands ran in."""
    for path in folder.glob("**/*"):
        text = path.read_text() if path.is_file() else ""
        for each in (socket.gethostname(), f"{Path.home()}/", str(work)):
            if found := re.search(rf"(?<!\w){re.escape(each)}(?!\w).*" if each[-1] != "/" else re.escape(each), text):
                raise SystemExit(f"{path} names this machine: {found[0][:80]}")


def main() -> None:
    """Run each command once, then replace the gallery's exhibits."""
    if len(sys.argv) != 2 or not (entries := Path(sys.argv[1]).resolve()).is_dir():
        raise SystemExit("usage: python tools/gallery.py dawn-bench-entries (a folder with CIFAR10/train in it)")
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        (work / "dawn-bench-entries").symlink_to(entries)
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        environment.pop("LEVELBENCH_STORE", None)
        for command in dict.fromkeys(each for commands in EXHIBITS.values() for each in commands):
            code = subprocess.run(shlex.split(command), cwd=work, env=environment, check=False).returncode
            if code not in (0, 1, 4):  # 1 is a finding or a worse verdict, 4 an unclear one
                raise SystemExit(f"{command}: exit code {code}")
            if command == IMPORT:
                keep_facts(work / "leaderboard")
        draw_timeline(work / "timeline.json", work / "timeline.svg")
        with tempfile.TemporaryDirectory() as kept:
            new = Path(kept)
            for name in EXHIBITS:
                if (work / name).is_dir():
                    shutil.copytree(work / name, new / name, ignore=shutil.ignore_patterns(".*"))
                else:
                    shutil.copy(work / name, new / name)
            refuse_traces_of_the_machine(new, work)
            for name in EXHIBITS:
                shutil.rmtree(GALLERY / name, ignore_errors=True)
            shutil.copytree(new, GALLERY, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
