"""Benchmarks of networks in separate processes: resumed after a kill, with crashes reported."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.experiments.network_runs import plan_of, specification

from levelbench.errors import LevelbenchError, UsageError
from levelbench.experiments import kernel, networks
from levelbench.experiments.kernel import carry_out
from levelbench.experiments.networks import NetworkBenchmarks, NetworkJob, NetworkNote
from levelbench.experiments.processes import CrashError
from levelbench.networks.files import save
from levelbench.networks.zoo import cnn
from levelbench.records.network_summary import summarise_networks
from levelbench.records.networks import (
    FOLDER,
    PHASES,
    MemoryRoom,
    NetworkArm,
    NetworkCase,
    NetworkFacts,
    NetworkRecord,
)


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "small.onnx"
    network = cnn((1, 8, 8), 4, 8, 3)
    save(network.stored(network.initialise(0)), path)
    return path


def test_the_error_of_a_killed_process_names_its_stage():
    notes = [NetworkNote(path="x", stage="open"), NetworkNote(path="x", stage="first")]
    with pytest.raises(CrashError, match=r"on numpy: its process was killed by signal 11 at first \(last words\)"):
        networks._raise_failure(NetworkJob(specification(), "."), notes, -11, "first\nlast words\n")


def test_the_error_that_a_process_reported_is_raised():
    notes = [NetworkNote(error=("this", "that", "do it"), exit_code=3, trace="the trace")]
    with pytest.raises(LevelbenchError, match=r"this: that\. Do it\.") as raised:
        networks._raise_failure(NetworkJob(specification(), "."), notes, 3, "")
    assert (raised.value.exit_code, raised.value.trace) == (3, "the trace")


def test_a_crash_is_recorded_by_the_next_process_and_the_others_continue(monkeypatch):
    tried = []

    def process(job, on_note):
        tried.append(job.crashed)
        if not job.crashed:
            networks._raise_failure(job, [NetworkNote(path="x", stage="first")], -11, "Segmentation fault")
        return [NetworkNote(path="y")]

    monkeypatch.setattr(networks, "_process", process)
    notes = networks._survived(NetworkJob(specification(), "."), lambda: None, lambda note: None)
    assert tried == ["", "its process was killed by signal 11 at first (Segmentation fault)"]
    assert notes[0].path == "y"


KIB, LIMIT = 1 << 10, 100_000
LIMITED = specification(arm=NetworkArm("numpy", transforms=(f"microbatch;memory={LIMIT * KIB}",)))


def room_of(peak, tensors=lambda spare: 98_000 - spare):
    """What an arm leaves of its limit of 100,000 KiB, what it was asked for and what was said; all in KiB.

    A plan that leaves ``spare`` of it has so many ``tensors``, and takes ``peak``.
    """
    asked, said = [], []

    def trial(job):
        spare = job.room.spare // KIB
        asked.append(spare)
        return [NetworkNote(peak_b=float(peak(spare) * KIB), tensors_b=tensors(spare) * KIB)]

    room = networks.find_room(NetworkJob(LIMITED, "."), said.append, trial)
    return room.spare // KIB, room.beside // KIB, asked, said


def test_a_plan_that_stays_within_its_memory_limit_is_kept():
    assert room_of(lambda spare: 90_000)[:3] == (0, -8_000, [0])


def test_a_plan_that_takes_more_than_its_limit_is_made_again_for_less():
    spare, beside, asked, _ = room_of(lambda spare: 98_000 - spare + 20_000 + spare // 10)
    assert 118_000 - spare * 9 // 10 <= 99_000
    assert beside == 20_000 + spare // 10
    assert asked == sorted(asked)


def test_what_was_planned_is_said_as_it_was_seen_to_be_taken():
    assert room_of(lambda spare: 90_000, lambda spare: 80_000)[3][-1] == (
        "numpy + microbatch;memory=102400000: planned 87.89 MiB of at most 97.66 MiB: 78.12 MiB of tensors and "
        "9.77 MiB that numpy took besides in a trial"
    )


def test_where_no_plan_stays_within_the_limit_the_one_that_takes_least_is_measured():
    spare, _, asked, said = room_of(lambda spare: max(110_000, 120_000 - spare))
    assert max(110_000, 120_000 - spare) == 110_000
    assert len(asked) <= 8
    assert "BEYOND" in said[-1]
    assert said[-1].endswith("108.51 MiB is the smallest limit that is known to hold")

    def refused(spare):
        if spare:
            raise UsageError("small in 800 B", "no split of the batch needs so little", "raise the limit")
        return 120_000

    spare, _, _, said = room_of(refused)
    assert spare == 0
    assert "this is BEYOND it, but no split of the batch needs so little: 118.37 MiB is the smallest" in said[-1]


def test_a_plan_between_one_that_takes_too_much_and_none_at_all_is_found():
    def peak(spare):
        if spare > 15_500:
            raise UsageError("small in 800 B", "no split of the batch needs so little", "raise the limit")
        return 98_000 - spare + 15_000

    spare, _, asked, said = room_of(peak)
    assert asked == [0, 16_000, 8_000, 12_000, 14_000]
    assert spare == 14_000
    assert "BEYOND" not in said[-1]


def test_a_plan_between_two_that_take_too_much_is_found():
    peaks = {0: 104_000}
    spare, _, asked, _ = room_of(lambda spare: peaks.get(spare, 98_500 if spare < 6_000 else 130_000))
    assert asked == [0, 7_000, 3_500]
    assert spare == 3_500


def test_what_earlier_processes_left_of_a_limit_is_left_again(tmp_path):
    room = MemoryRoom(77, 5)
    done = {(0, 0): SimpleNamespace(facts=NetworkFacts(room=room))}
    plan = replace(plan_of([[LIMITED]], 3, tmp_path), done=done)
    kind = NetworkBenchmarks(tmp_path)
    assert kind._room(plan, plan.to_go[0], NetworkJob(LIMITED, "."), kernel.Watcher()) == room


def test_a_killed_process_is_not_a_crash(monkeypatch):
    def process(job, on_note):
        networks._raise_failure(job, [NetworkNote(path="x", stage="first")], -9, "")

    monkeypatch.setattr(networks, "_process", process)
    with pytest.raises(LevelbenchError, match="Run the same command again"):
        networks._survived(NetworkJob(specification(), "."), lambda: None, lambda note: None)


def test_if_the_reference_process_dies_only_the_comparison_is_lost(monkeypatch, tmp_path):
    monkeypatch.setattr(networks, "listen", lambda *given: ([], -11, "Segmentation fault"))
    job = networks._reference(NetworkJob(specification(), "."), tmp_path / "r.npz", kernel.Watcher())
    assert (job.reference, job.no_reference) == ("", "the process that computes the reference was killed by signal 11")


def test_a_network_that_cannot_be_built_ends_the_benchmark_with_the_reason(tmp_path):
    spec = specification(path=tmp_path / "nowhere.onnx")
    plan = plan_of([[spec]], 1, tmp_path)
    with pytest.raises(LevelbenchError, match=r"nowhere\.onnx"):
        networks._reference(NetworkJob(plan.arms[0], str(tmp_path)), tmp_path / "r.npz", kernel.Watcher())


class Watcher(kernel.Watcher):
    def __init__(self):
        self.seen, self.stages = [], []

    def preparing(self, what):
        self.seen.append(what)

    def started(self, turn, number, total):
        self.seen.append(f"{number} of {total}")

    def progress(self, turn, stage, elapsed_s=0.0, events=()):
        self.stages.append(stage)

    def finished(self, turn, record):
        self.seen.append(record.outcome.status)


@pytest.fixture
def known_ceilings(monkeypatch):
    """Ceilings take two seconds per framework, and are tested elsewhere."""
    monkeypatch.setattr(networks, "_ceilings", lambda plan, store, watcher: {"flop_s": {}, "bandwidth_b_s": {}})


@pytest.mark.slow
@pytest.mark.usefixtures("known_ceilings")
def test_a_small_network_is_measured_on_two_frameworks_and_summarised(tmp_path, model_file, warm_torch):
    pytest.importorskip("torch")
    from levelbench.measure.environment import capture

    grid = [[specification(name, path=model_file) for name in ("numpy", "torch")]]
    environment, watcher = capture(), Watcher()
    plan = plan_of(grid, 1, tmp_path, environment)
    records = carry_out(plan, NetworkBenchmarks(tmp_path), watcher)
    summary = summarise_networks(plan.arranged(records))
    assert watcher.seen == ["computing the reference of small batch=1", "1 of 2", "measured", "2 of 2", "measured"]
    assert "latency" in watcher.stages
    for entry in summary.rows[0][1]:
        assert entry.status == "measured"
        assert entry.checked.startswith("against numpy on 1 rows")
        assert entry.latency[0].estimate.value > 0
        assert entry.memory.estimate.value > 0
        assert all(entry.phases[name].estimate.value > 0 for name in (*PHASES, "cold_start"))
        assert sum(row.share for row in entry.operators) == pytest.approx(1.0)
        assert entry.overhead.estimate is not None
    assert summary.rows[0][1][1].verdict.ratio > 0
    assert not plan_of(grid, 1, tmp_path, environment).to_go


CRASHING = """
import os, signal
import torch

inputs = {"x": ("batch", 4)}


class Crashing(torch.nn.Module):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGSEGV)


def build():
    return Crashing()


def sound():
    return torch.nn.Linear(4, 2)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("known_ceilings")
def test_a_crash_of_a_framework_is_recorded_and_the_others_are_measured(tmp_path, warm_torch):
    pytest.importorskip("torch")
    path = tmp_path / "crashing.py"
    path.write_text(CRASHING)
    cases = [NetworkCase("model", "native", 1, path=f"{path}:{name}") for name in ("build", "sound")]
    grid = [[specification("torch", case=case)] for case in cases]
    plan = plan_of(grid, 1, tmp_path)
    records = carry_out(plan, NetworkBenchmarks(tmp_path), kernel.Watcher())
    crashed, sound = (records[case, 0] for case in range(2))
    assert (crashed.status, crashed.outcome.status) == ("done", "failed")
    assert "killed by signal 11 at first" in crashed.outcome.reason
    assert sound.outcome.status == "measured"
    assert sound.outcome.checked.startswith("against a second model in mode eager")
    assert sound.facts.parameters == 10


def test_ceilings_are_measured_once_per_framework_and_dtype(tmp_path, monkeypatch):
    asked = []

    def process(job):
        arm = job.specification.arm
        asked.append((arm.framework, job.dtype))
        value = {"value": float(len(asked)), "interval": None, "n": 1, "statistic": "single value"}
        return [NetworkNote(ceilings={"flop_s": {job.dtype: value}, "bandwidth_b_s": {}, "framework": arm.framework})]

    monkeypatch.setattr(networks, "_process", process)
    arms = [NetworkArm("numpy"), NetworkArm("numpy", transforms=("precision:bfloat16", "dead-nodes"))]
    plan = plan_of([[specification(batch=batch, arm=arm) for arm in arms] for batch in (1, 8)], 2, tmp_path)
    found = networks._ceilings(plan, tmp_path, kernel.Watcher())
    assert asked == [("numpy", "float32"), ("numpy", "bfloat16")]
    assert {name: limit["value"] for name, limit in found["flop_s"].items()} == {"float32": 1.0, "bfloat16": 2.0}


_CAMPAIGN = """
import sys
from pathlib import Path
import msgspec
from levelbench.measure.environment import capture
from levelbench.records.networks import NetworkSpecification
from levelbench.experiments import kernel, networks

networks._ceilings = lambda plan, store, watcher: {"flop_s": {}, "bandwidth_b_s": {}}
spec, store = msgspec.json.decode(sys.argv[1], type=NetworkSpecification), Path(sys.argv[2])
kind = networks.NetworkBenchmarks(store)
plan = kernel.make_plan(kind, [spec], range(2), capture())
print(len(plan.to_go), flush=True)
kernel.carry_out(plan, kind, kernel.Watcher())
"""


def campaign(spec, store):
    import msgspec

    words = [sys.executable, "-c", _CAMPAIGN, msgspec.json.encode(spec).decode(), str(store)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.slow
def test_after_a_kill_the_same_command_makes_only_what_is_missing(tmp_path, model_file):
    spec = specification(path=model_file, budget_s=0.5, samples=10**6)
    first = campaign(spec, tmp_path)
    try:
        deadline = time.monotonic() + 120
        # The second process has begun once there are two records.
        while len(list((tmp_path / FOLDER).rglob("*.jsonlines"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        first.stdout.close()
    again = campaign(spec, tmp_path)
    output, _ = again.communicate(timeout=200)
    assert again.returncode == 0
    assert output.splitlines()[0] == "1"
    records = [NetworkRecord.read(path) for path in (tmp_path / FOLDER).rglob("*.jsonlines")]
    assert sorted((record.header.seed, record.status) for record in records) == [
        (0, "done"),
        (1, "done"),
        (1, "interrupted"),
    ]
