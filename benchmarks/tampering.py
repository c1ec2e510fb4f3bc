"""Tampered records, and who finds them: `compare`, `lint` and `board check`; and honest ones, that nobody may doubt.

    python benchmarks/tampering.py [--tamperings 1000] [--seed 0] [--runs FOLDER]
    python benchmarks/tampering.py --honest 10000 [--busy 4] [--runs FOLDER]
    python benchmarks/tampering.py --entries 20 [--honest 300] [--seed 0] [--runs FOLDER]

Makes a store of two arms of real runs (or takes those of FOLDER, which has `a/` and `b/`), then changes one record of
the second arm at a time: single bits, times scaled and shifted, events swapped, dropped and doubled, forged ends,
qualities and headers, and the events of one run under the header of another. Each change is tried twice: as it is, and
with all checksums computed again by the forger, who also makes the board's entry anew of the forged record. The three
commands run in this process as a user calls them. Every row says how many of the changes each of them found.

`--entries` makes twelve entries of a leaderboard (or those of `--honest`), each of five real runs of `digits` with its
own seeds and one of twelve settings, and so many forged ones (none with 0) that claim to need 1.5 to 3 times less, with
all digests computed again and no doubts. It counts what `board verify` says of each: to find forged times it needs the
machine to itself, since a busy one cannot tell what times are true.

`--honest` makes so many runs instead, each in a process of its own, from seed `--seed` on, with `--busy` processes
beside them that keep the machine busy, and says how many of them contradict themselves: it has to be none.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.warm import TORCH, WARM

from levelbench.cli import main as levelbench
from levelbench.competition import making
from levelbench.competition.entries import SubmittedCurve, curve_digest, file_digest, read_submission
from levelbench.errors import LevelbenchError
from levelbench.records import read_record, summarise
from levelbench.records.lines import checksum_in, sealed

_ARMS = {"a": "digits[hidden=96]", "b": "digits"}
_RUNS = 3
_OPEN_ENDED = 8
_PUBLISHED = (
    *("lr=0.002,hidden=2048", "lr=0.0015,hidden=2048", "lr=0.003,hidden=2048", "lr=0.002,hidden=3072"),
    *("lr=0.002,hidden=4096", "lr=0.002,hidden=2048,batch=32", "lr=0.003,hidden=2048,batch=128"),
    "lr=0.003,hidden=2048,momentum=0.8",
    *(f"recipe=onecycle,{each}" for each in ("hidden=2048,epochs=20", "hidden=2048,epochs=20,lr=0.2")),
    *(f"recipe=onecycle,{each}" for each in ("hidden=2048,epochs=30", "hidden=3072,epochs=20")),
)
"""Settings of the honest entries, whose runs take half a second: in a tenth of that, warming up hides what was forged.
The first ``_OPEN_ENDED`` stop once the target is confirmed."""
_FRESH = 500_000
"""Where the seeds begin that the entries of seed 0 are run again with: above those of any entry."""
_TOOLS = ("compare", "lint", "board check")
_SUM = re.compile(rb',"sum":"[0-9a-f]{16}"}\n')
_FOUND = re.compile(r"is damaged|contradicts itself|comes after the end|is not the header|schema \d+ and this version")
Lines = list[dict[str, Any]]


def resealed(raw: bytes) -> bytes:
    """The file with every checksum computed again."""
    found, before = [], ""
    for line in _SUM.sub(b"}\n", raw).splitlines(keepends=True):
        found.append(sealed(line, before))
        before = checksum_in(found[-1])
    return b"".join(found)


def _times(rows: Lines, factor: float, kinds: tuple[str, ...] = ("evaluation", "end")) -> None:
    for row in rows:
        if row["kind"] in kinds:
            row["phases_ns"] = {name: round(ns * factor) for name, ns in row["phases_ns"].items()}
            row["t_ns"] = sum(row["phases_ns"].values())


def _steps(rows: Lines, factor: float) -> None:
    for row in rows:
        if row["kind"] == "samples" and row["name"] == "step_time":
            row["values"] = [round(value * factor) for value in row["values"]]


def scaled_times(rows: Lines, random: Random, _: Lines) -> None:
    """Evaluations and end, by 0.3 to 0.97; the raw step times are left alone."""
    _times(rows, random.uniform(0.3, 0.97))


def scaled_slower(rows: Lines, random: Random, _: Lines) -> None:
    """Evaluations and end, by 1.05 to 3: somebody else's run is made slower."""
    _times(rows, random.uniform(1.05, 3.0))


def scaled_steps(rows: Lines, random: Random, _: Lines) -> None:
    """The raw step times alone, by 1.05 to 3."""
    _steps(rows, random.uniform(1.05, 3.0))


def scaled_everything(rows: Lines, random: Random, _: Lines) -> None:
    """Evaluations, end and steps, all by the same factor."""
    factor = random.uniform(0.3, 0.97)
    _times(rows, factor)
    for row in rows:
        if row["kind"] == "samples" and row["name"] == "step_time":
            row["values"] = [int(value * factor) for value in row["values"]]


def shifted_time(rows: Lines, random: Random, _: Lines) -> None:
    """One evaluation, or the end, earlier by some of its time; the phases are left alone."""
    row = random.choice([row for row in rows if row["kind"] in ("evaluation", "end")])
    row["t_ns"] -= random.randrange(1, row["t_ns"])


def shifted_phase(rows: Lines, random: Random, _: Lines) -> None:
    """From one evaluation on a phase of training is shorter by a millisecond or more, and the time with it."""
    places = [at for at, row in enumerate(rows) if row["kind"] == "evaluation"]
    first = random.choice(places)
    name = random.choice(["forward", "backward"])
    less = random.randrange(rows[first]["phases_ns"][name] // 4, rows[first]["phases_ns"][name])
    for row in rows[first:]:
        if row["kind"] in ("evaluation", "end"):
            row["phases_ns"][name] -= less
            row["t_ns"] -= less


def shifted_other(rows: Lines, random: Random, _: Lines) -> None:
    """Preparation is shorter from the first evaluation on, and the time with it."""
    prepare = next(row for row in rows if row["kind"] == "evaluation")["phases_ns"]["prepare"]
    less = random.randrange(prepare // 4, prepare)
    for row in rows:
        if row["kind"] in ("evaluation", "end"):
            row["phases_ns"]["prepare"] -= less
            row["t_ns"] -= less


def swapped(rows: Lines, random: Random, _: Lines) -> None:
    """Two events of one kind change places."""
    kind = random.choice(["evaluation", "samples"])
    one, two = random.sample([at for at, row in enumerate(rows) if row["kind"] == kind], 2)
    rows[one], rows[two] = rows[two], rows[one]


def dropped(rows: Lines, random: Random, _: Lines) -> None:
    """An evaluation, a block of step times or the end is taken out. Without its end a run counts as interrupted."""
    del rows[random.choice([at for at, row in enumerate(rows) if row["kind"] in ("evaluation", "samples", "end")])]


def dropped_last(rows: Lines, random: Random, _: Lines) -> None:
    """The last evaluation with its step times is taken out."""
    del rows[max(at for at, row in enumerate(rows) if row["kind"] == "samples")]
    del rows[max(at for at, row in enumerate(rows) if row["kind"] == "evaluation")]


def dropped_meter(rows: Lines, random: Random, _: Lines) -> None:
    """What a meter read is taken out."""
    del rows[random.choice([at for at, row in enumerate(rows) if row["kind"] == "measurement"])]


def doubled(rows: Lines, random: Random, _: Lines) -> None:
    """An event comes twice."""
    at = random.choice([at for at, row in enumerate(rows) if row["kind"] in ("evaluation", "samples", "end")])
    rows.insert(at, rows[at])


def forged_end(rows: Lines, random: Random, _: Lines) -> None:
    """The end says another time, quality, reason or error."""
    end = rows[-1]
    match random.randrange(4):
        case 0:
            end["t_ns"] = round(end["t_ns"] * random.uniform(0.3, 0.95))
        case 1:
            end["quality"]["validation"] = min(1.0, end["quality"]["validation"] + 1 / 359)
        case 2:
            end["stopped_by"] = random.choice(["plateau: no better in 5 evaluations", "budget of 1 s spent"])
        case _:
            end["error"] = "diverged: the training loss is nan at step 17"


def forged_test(rows: Lines, random: Random, _: Lines) -> None:
    """The quality on the test split, which is looked at once, is another share of its examples."""
    right = round(rows[-1]["quality"]["test"] * 359)
    rows[-1]["quality"]["test"] = random.choice([each for each in range(330, 360) if each != right]) / 359


def forged_test_off(rows: Lines, random: Random, _: Lines) -> None:
    """The quality on the test split is a round figure."""
    rows[-1]["quality"]["test"] = random.randrange(9500, 9999) / 1e4 + 1.7e-5


def forged_quality(rows: Lines, random: Random, _: Lines) -> None:
    """An evaluation but the last two is better: another share of the split's examples."""
    row = random.choice([row for row in rows if row["kind"] == "evaluation"][:-2])
    row["quality"]["validation"] = random.choice([each / 359 for each in range(300, 340)])


def forged_header(rows: Lines, random: Random, _: Lines) -> None:
    """Another setting, target, budget or text of the source."""
    specification = rows[0]["specification"]
    match random.randrange(4):
        case 0:
            specification["settings"]["lr"] *= 1.5
        case 1:
            specification["target"]["threshold"] -= 0.02
        case 2:
            specification["budget_epochs"] += 1
        case _:
            rows[0]["source"]["text"] += "\n"


def forged_seed(rows: Lines, random: Random, _: Lines) -> None:
    """Another seed, or another start."""
    if random.randrange(2):
        rows[0]["seed"] += random.randrange(1, 100)
    else:
        rows[0]["started"] = "2026-01-01T00:00:00.000+00:00"


def mixed(rows: Lines, random: Random, other: Lines) -> None:
    """The events of a run of the other arm under this header."""
    rows[1:] = other[1:]


def mixed_curve(rows: Lines, random: Random, other: Lines) -> None:
    """The evaluations of a run of the other arm, with this run's steps and end."""
    curve = [row for row in other if row["kind"] == "evaluation"]
    places = [at for at, row in enumerate(rows) if row["kind"] == "evaluation"]
    for at, row in zip(places, curve, strict=False):
        rows[at] = row


def dropped_witness(rows: Lines, random: Random, _: Lines) -> None:
    """What other clocks saw is taken out, and the times scaled with the steps."""
    scaled_everything(rows, random, _)
    rows[-1]["witness"] = None


def scaled_witness(rows: Lines, random: Random, _: Lines) -> None:
    """Everything by one factor, the readings of the run's own clocks in its witness too; the parent's are left."""
    factor = random.uniform(0.3, 0.97)
    _times(rows, factor)
    _steps(rows, factor)
    for sight in rows[-1]["witness"]["sights"]:
        for place in (1, 3, 4):  # its own clock, its second one, and what the kernel has counted
            if sight[place] is not None:
                sight[place] = [round(ns * factor) for ns in sight[place]]


def older_schema(rows: Lines, random: Random, _: Lines) -> None:
    """Everything by one factor, in a record that says that it is of the first schema, without what that never had."""
    scaled_everything(rows, random, _)
    rows[0]["schema"] = 1
    rows[-1]["witness"] = None
    for name in ("quality", "data", "modules"):
        rows[0]["source"].pop(name, None)
    for name in ("planned_effect", "planned_runs", "replaced"):
        rows[0].pop(name, None)


def silenced(rows: Lines, random: Random, _: Lines) -> None:
    """A doubt, or what one is derived from, is taken out."""
    match random.randrange(4):
        case 0:
            rows[-1]["suspect"] = [] if rows[-1]["suspect"] else ["its seed was chosen"]
        case 1:
            del rows[next(at for at, row in enumerate(rows) if row.get("name") == "untrained_quality")]
        case 2:
            del rows[0]["environment"]["before_clock"]
        case _:
            rows[-1]["environment_after"] = {}


def early_end(rows: Lines, random: Random, _: Lines) -> None:
    """The run ends at an evaluation before its last, which reads as the last one did."""
    places = [at for at, row in enumerate(rows) if row["kind"] == "evaluation"]
    at, last, end = random.choice(places[1:-1]), rows[places[-1]], rows[-1]
    less = last["t_ns"] - rows[at]["t_ns"]
    for back, place in enumerate((at, places[places.index(at) - 1])):
        rows[place]["quality"] = rows[places[-1 - back]]["quality"]
    shift = {name: last["phases_ns"][name] - ns for name, ns in rows[at]["phases_ns"].items()}
    end["t_ns"] -= less
    end["phases_ns"] = {name: ns - shift[name] for name, ns in end["phases_ns"].items()}
    del rows[at + 1 : places[-1] + 1]


KINDS: tuple[Callable[[Lines, Random, Lines], None], ...] = (
    *(scaled_times, scaled_slower, scaled_steps, scaled_everything, shifted_time, shifted_phase, shifted_other),
    *(swapped, dropped, dropped_last, dropped_meter, doubled, forged_end, forged_test, forged_test_off),
    *(forged_quality, forged_header, forged_seed, mixed, mixed_curve),
    *(dropped_witness, scaled_witness, older_schema, silenced, early_end),
)


def bit(raw: bytes, random: Random) -> bytes:
    """``raw`` with one bit the other way round, in a line and not in its checksum."""
    lines = raw.splitlines(keepends=True)
    at = random.choices(range(len(lines)), [len(line) for line in lines])[0]
    changed = bytearray(lines[at])
    where = random.randrange(8 * (len(changed) - len(',"sum":"0123456789abcdef"}\n')))
    changed[where // 8] ^= 1 << where % 8
    return b"".join([*lines[:at], bytes(changed), *lines[at + 1 :]])


def tampered(raw: bytes, other: bytes, kind: Callable[..., None] | None, random: Random) -> tuple[bytes, bytes]:
    """What a careless forger leaves, and what one leaves who computes the checksums again."""
    if kind is None:
        changed = bit(raw, random)
        return changed, resealed(changed)
    rows = [json.loads(line) for line in raw.splitlines()]
    kind(rows, random, [json.loads(line) for line in other.splitlines()])
    changed = b"".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for row in rows)
    return changed, resealed(changed)


def called(*words: str) -> tuple[int, str]:
    """Call the program as a user does: its exit code and all that it printed."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        try:
            levelbench(list(words))
        except SystemExit as ended:
            return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


def verdicts(place: Path, record: Path, entry: Path) -> dict[str, bool]:
    """Which of the commands refuse the record; the entry is made anew of what can be read of it."""
    store = str(place / "none")
    compare, said = called("compare", f"{place / 'a'}/", f"{place / 'b'}/", "--store", store, "--fail-on", "never")
    found = {"compare": compare != 0 and bool(_FOUND.search(said))}
    lint, said = called("lint", f"{place / 'b'}/", "--store", store, "--fail-on", "never")
    found["lint"] = lint != 0 and bool(_FOUND.search(said))
    stated = read_submission(entry)
    at = next(at for at, run in enumerate(stated.runs) if run.record_id in record.name)
    runs = list(stated.runs)
    runs[at] = msgspec.structs.replace(runs[at], record_digest=file_digest(record))
    try:
        # The forger's own program does not refuse.
        with patch.object(making, "require_consistent", lambda run: run):
            runs[at] = making.run_of(read_record(record), stated.target, stated.clock or "wall", stated.crossing or "")
    except (LevelbenchError, ValueError):
        pass
    forged = place / "forged.json"
    forged.write_bytes(msgspec.json.encode(msgspec.structs.replace(stated, runs=runs)))
    check, said = called("board", "check", str(forged), "--records", str(place / "b"), "--json", "--no-lint")
    told = json.loads(said)["findings"] if check else []
    found["board check"] = any(each["code"] == "B179" for each in told)
    return found


def make_arms(folder: Path) -> None:
    """Real runs of both arms."""
    for name, task in _ARMS.items():
        command = [sys.executable, "-m", "levelbench", "run", task, "-n", str(_RUNS), "--framework", "numpy"]
        subprocess.run([*command, "--store", str(folder / name)], check=False, stdout=subprocess.DEVNULL)


def make_entry(folder: Path, arm: Path) -> Path:
    """The board's entry of an arm, as `board submit` makes it."""
    who = ("--author", "A", "--email", "a@example.org", "--code-url", "https://example.org/a/tree/0a1b2c3d")
    code, said = called("board", "submit", f"{arm}/", *who, "--force", "--store", str(arm), "-o", str(folder / "board"))
    found = next((folder / "board").rglob("training/*.json"), None)
    if found is None:
        raise SystemExit(f"board submit ended with {code}: {said}")
    return found


def try_all(runs: Path, count: int, seed: int) -> None:
    """Try ``count`` tamperings twice each, and print the table."""
    random = Random(seed)
    records = {arm: sorted((runs / arm).rglob("*.jsonl"))[:_RUNS] for arm in _ARMS}
    tried: Counter[str] = Counter()
    caught: Counter[tuple[str, str, str]] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        clean = Path(scratch) / "clean"
        for arm, paths in records.items():
            (clean / arm).mkdir(parents=True)
            for path in paths:
                shutil.copy(path, clean / arm)
        entry = make_entry(Path(scratch), clean / "b")
        if any(verdicts(clean, next((clean / "b").glob("*.jsonl")), entry).values()):
            raise SystemExit("the honest store is accused")
        kinds = [None, *KINDS]
        for number in range(count):
            kind = kinds[number % len(kinds)]
            name = kind.__name__.replace("_", " ") if kind else "single bits"
            target, other = random.choice(records["b"]), random.choice(records["a"])
            tried[name] += 1
            for way, raw in zip(
                ("raw", "sums"), tampered(target.read_bytes(), other.read_bytes(), kind, random), strict=True
            ):
                # A path of its own each time: what was read of a file is remembered by its path.
                place = Path(scratch) / f"{number}-{way}"
                shutil.copytree(clean, place)
                record = place / "b" / target.name
                record.write_bytes(raw)
                for tool, found in verdicts(place, record, entry).items():
                    caught[name, way, tool] += found
                shutil.rmtree(place)
    print_table(tried, caught)


def print_table(tried: Counter[str], caught: Counter[tuple[str, str, str]]) -> None:
    """A row a kind: how many were tried, and how many each command found, raw and with the sums computed again."""
    print(
        "| what was changed | tried | raw: " + ", ".join(_TOOLS) + " | sums computed again: " + ", ".join(_TOOLS) + " |"
    )
    print("|---|--:|--:|--:|")
    for name in (*tried, ""):
        count = tried[name] if name else sum(tried.values())
        cells = []
        for way in ("raw", "sums"):
            each = [
                caught[name, way, tool] if name else sum(caught[kind, way, tool] for kind in tried) for tool in _TOOLS
            ]
            cells.append(" ".join(map(str, each)))
        print(f"| {name or 'all'} | {count} | {cells[0]} | {cells[1]} |")
    whole = {way: sum(caught[kind, way, "lint"] for kind in tried) / sum(tried.values()) for way in ("raw", "sums")}
    print(f"\nfound by lint: {whole['raw']:.1%} raw, {whole['sums']:.1%} with the sums computed again")
    missed = [kind for kind in tried if min(caught[kind, "sums", tool] for tool in _TOOLS) < tried[kind]]
    print(f"not always found with the sums computed again: {', '.join(missed) or 'none'}")


def try_honest(runs: Path, count: int, busy: int, seed: int) -> None:
    """Make honest runs, in many ways, until there are ``count``, and count those that are accused of anything."""
    ways = (
        ["digits"],
        ["digits[recipe=onecycle]"],
        ["digits", "--every", "10 steps"],
        ["digits", "--every", "500 samples", "--crossing", "first"],
        ["digits", "--target", "0.3", "--every", "20 steps"],
        ["digits", "--budget", "0.03"],
        ["digits", "--budget-samples", "3000"],
        ["digits[lr=0.0001]", "--plateau", "2"],
        ["digits[lr=300]"],
        ["digits", "--checkpoint", "1 epoch"],
    )
    binary = (["spam"], ["spam", "--target", "0.8", "--crossing", "first"])
    torch = (["digits"], ["digits", "--every", "10 steps"], ["digits[hidden=16]", "--crossing", "first"], ["spam"])
    made, at = 0, seed
    # Two threads that wait for each other on busy cores take minutes for a run of a tenth of a second.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    beside = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        while made < count:
            with WARM.processes():
                for way in ways:
                    made += honest_runs(runs, [*way, "--framework", "numpy"], at, 80)
                for way in binary:
                    made += honest_runs(runs, [*way, "--framework", "numpy"], at, 4)
            with WARM.processes(*TORCH):
                for way in torch:
                    made += honest_runs(runs, [*way, "--framework", "torch"], at, 10)
            made += honest_runs(runs, ["digits", "--framework", "numpy", "--ranks", "2"], at, 1)
            made += resumed_runs(runs, at, 2)
            at += 80
            print(f"{made} of {count}", file=sys.stderr, flush=True)
    finally:
        WARM.close()
        for process in beside:
            process.kill()
    judge_honest(runs)


def honest_runs(runs: Path, words: list[str], seed: int, count: int) -> int:
    """``count`` runs from ``seed`` on, each in a process that is forked from one with the imports behind it."""
    command = ["run", *words, "-n", str(count), "--seed", str(seed), "--store", str(runs / "honest"), "--no-report"]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(SystemExit):
        levelbench(command)
    return count


def resumed_runs(runs: Path, seed: int, count: int) -> int:
    """Runs whose process is killed on the way, and that go on from their checkpoint."""
    words = ["digits[lr=0.01]", "--target", "0.99", "--checkpoint", "20 steps", "--framework", "numpy"]
    command = ["run", *words, "-n", str(count), "--seed", str(seed), "--store", str(runs / "honest"), "--no-report"]
    for wait_s in (1.5, 2.0):
        process = subprocess.Popen(
            [sys.executable, "-m", "levelbench", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(wait_s)
        process.kill()
        process.wait()
    return honest_runs(runs, words, seed, count)


def judge_honest(runs: Path) -> None:
    """Read every record below ``runs``; print how many contradict themselves, and what the others are doubted for."""
    status: Counter[str] = Counter()
    doubts: Counter[str] = Counter()
    accused = 0
    for path in sorted(runs.rglob("*.jsonl")):
        run = summarise(read_record(path))
        status[run.status] += 1
        accused += bool(run.contradictions)
        for each in run.contradictions:
            print(f"{path}: {each}")
        doubts.update({re.sub(r"\d+(\.\d+)?", "#", each) for each in run.suspect})
    counts = ", ".join(f"{count} {name}" for name, count in status.items())
    for doubt, count in doubts.most_common():
        print(f"doubt of {count}: {doubt}")
    print(f"honest runs: {sum(status.values())} ({counts}); that contradict themselves: {accused}")


def _factors(run: dict[str, Any], factor: float, *columns: str) -> None:
    """The columns of the run's curve divided by the factor; counts stay whole."""
    for name in columns:
        run["curve"][name] = [type(each)(each / factor) for each in run["curve"][name]]


def fewer_seconds(run: dict[str, Any], factor: float) -> None:
    """All times divided."""
    _factors(run, factor, "time_s")


def fewer_samples(run: dict[str, Any], factor: float) -> None:
    """Samples, steps and epochs divided."""
    _factors(run, factor, "samples", "steps", "epoch")


def fewer_of_both(run: dict[str, Any], factor: float) -> None:
    """Times, samples, steps and epochs divided."""
    _factors(run, factor, "time_s", "samples", "steps", "epoch")


def evaluations_left_out(run: dict[str, Any], factor: float) -> None:
    """The curve ends earlier, with the qualities that it ended with."""
    curve = run["curve"]
    count, end = max(2, int(len(curve["quality"]) / factor)), curve["quality"][-2:]
    run["curve"] = {name: values[:count] for name, values in curve.items()}
    run["curve"]["quality"][-2:] = end


def better_qualities(run: dict[str, Any], factor: float) -> None:
    """The curve ends earlier, with qualities that an example or more lifts to the target."""
    curve = run["curve"]
    count = max(2, int(len(curve["quality"]) / factor))
    run["curve"] = {name: values[:count] for name, values in curve.items()}
    run["curve"]["quality"][-2:] = [max(each, 345 / 359) for each in run["curve"]["quality"][-2:]]


def shorter_steps(run: dict[str, Any], factor: float) -> None:
    """The phases of training are shorter, and the times with them; preparing takes what it took."""
    times, prepared = run["curve"]["time_s"], run["phases_s"]["prepare"]
    left = max(times[-1] / factor - prepared, 0.02 * times[-1]) / (times[-1] - prepared)
    run["curve"]["time_s"] = [prepared + (each - prepared) * left for each in times]


FORGERIES = (fewer_seconds, fewer_samples, fewer_of_both, evaluations_left_out, better_qualities, shorter_steps)


def forged(entry: Path, kind: Callable[..., None], factor: float) -> dict[str, Any]:
    """The entry with every run forged, its phases and its time to the target as they follow, and no doubts."""
    stated: dict[str, Any] = json.loads(entry.read_bytes())
    for run in stated["runs"]:
        before = run["curve"]["time_s"][-1]
        kind(run, factor)
        time_s = run["curve"]["time_s"][-1]
        run["phases_s"] = {name: each * time_s / before for name, each in run["phases_s"].items()}
        run["time_to_target_s"] = time_s
        run["curve_digest"] = curve_digest(msgspec.convert(run["curve"], SubmittedCurve))
        run["record_digest"] = hashlib.sha256(run["curve_digest"].encode()).hexdigest()
        run["record_id"] = run["record_digest"][:16]
        run.pop("suspect", None)
    return stated


def try_entries(runs: Path, count: int, honestly: int, seed: int) -> None:
    """Verify ``honestly`` honest entries and ``count`` forged ones, and print what is said of them."""
    random = Random(seed)
    # Two threads that wait for each other on busy cores take minutes for a run of a tenth of a second.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    said: Counter[tuple[str, str]] = Counter()
    with WARM.processes():
        made = [make_published(runs, at, _PUBLISHED[at % len(_PUBLISHED)]) for at in range(honestly)]
        honest = [(entry, "honest", entry.read_bytes()) for entry in made]
        tried = []
        for at in range(count):
            kind, factor = FORGERIES[at % len(FORGERIES)], random.choice((1.5, 1.5, 1.7, 2.0, 3.0))
            # A recipe of fixed length needs the samples of its length, whatever somebody claims.
            entry = made[at % (len(_PUBLISHED) if kind in (fewer_seconds, shorter_steps) else _OPEN_ENDED)]
            tried.append((entry, kind.__name__.replace("_", " "), msgspec.json.encode(forged(entry, kind, factor))))
        for at, (entry, name, text) in enumerate((*honest, *tried)):
            place = runs / f"verified-{at}"
            place.mkdir(exist_ok=True)
            (place / entry.name).write_bytes(text)
            words = ("--into", str(place / "runs"), "--seed", str(1000 * seed + _FRESH), "--json")
            _, out = called("board", "verify", str(place / entry.name), *words)
            found = json.loads(out[out.index("{\n") :])
            said[name, found["kind"]] += 1
            print(f"{name} {entry.name}: {found['kind']}: {found['reason']}", file=sys.stderr, flush=True)
    WARM.close()
    kinds = ("inconsistent", "cannot tell", "consistent")
    print("| entries | tried | " + " | ".join(kinds) + " |\n|---|--:|--:|--:|--:|")
    for name in dict.fromkeys(name for _, name, _ in (*honest, *tried)):
        counts = [said[name, each] for each in kinds]
        print(f"| {name} | {sum(counts)} | {' | '.join(map(str, counts))} |")


def make_published(runs: Path, at: int, words: str) -> Path:
    """An honest entry of five runs with seeds of its own."""
    store = runs / f"published-{at}"
    if not store.exists():
        task = f"digits[{words}]"
        command = ["run", task, "-n", "5", "--seed", str(10 * at), "--framework", "numpy", "--no-report"]
        called(*command, "--store", str(store))
    return make_entry(store, store)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamperings", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--honest", type=int, default=0, help="make so many honest runs, or entries beside --entries")
    parser.add_argument("--entries", type=int, help="verify so many forged entries, and honest ones: --honest, or 12")
    parser.add_argument("--busy", type=int, default=0, help="so many processes keep the machine busy meanwhile")
    parser.add_argument("--runs", type=Path, help="folder of the runs; kept")
    parser.add_argument("--read", action="store_true", help="only read the honest runs in the folder of --runs")
    chosen = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        runs = chosen.runs or Path(scratch)
        if chosen.read:
            judge_honest(runs)
        elif chosen.entries is not None:
            try_entries(runs, chosen.entries, chosen.honest or len(_PUBLISHED), chosen.seed)
        elif chosen.honest:
            try_honest(runs, chosen.honest, chosen.busy, chosen.seed)
        else:
            if not (runs / "b").exists():
                make_arms(runs)
            try_all(runs, chosen.tamperings, chosen.seed)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
