import hashlib
import io
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from levelbench.cli import main
from levelbench.records import SCHEMA, End, Evaluation, Header, Measurement, RecordWriter, Samples, Specification
from levelbench.records.schema import Sight, Source, Target, Witness, key_of

MS = 1_000_000


def specification(framework="numpy", task="digits", threshold=0.96, crossing="confirmed"):
    return Specification(
        task=task,
        recipe="mlp",
        framework=framework,
        device="cpu",
        settings={"lr": 0.05},
        target=Target("top1", threshold),
        crossing=crossing,
        clock="wall",
        evaluate_every="1 epoch",
        budget_epochs=60.0,
    )


def environment(machine="m1"):
    return {
        "machine": {"id": machine, "cpu": {"model": f"processor {machine}"}},
        "libraries": {"numpy": "2.4"},
        "before_clock": {"cpu_s": 0.5},
    }


def write_run(
    store,
    spec,
    seed,
    identity,
    qualities,
    step_ms=1.0,
    machine="m1",
    status="done",
    minute=0,
    suspect=(),
    batch=64,
    planned=0,
):
    """A record of as many epochs of ten steps as there are qualities, every step of ``step_ms``."""
    qualities = [each + seed * 2e-4 for each in qualities]
    header = Header(
        schema=SCHEMA,
        id=identity,
        key=key_of(spec),
        seed=seed,
        started=f"2026-01-02T03:{minute:02d}:05.{seed:03d}+00:00",
        specification=spec,
        environment=environment(machine),
        source=Source("task", hashlib.sha256(b"# the task").hexdigest(), "# the task"),
        version="0.1.0",
        planned_runs=planned,
    )
    with RecordWriter.create(store, header) as writer:
        phases = {"prepare": 20 * MS, "forward": 0, "backward": 0, "evaluate": 0}
        for epoch, quality in enumerate(qualities, 1):
            phases = {
                **phases,
                "forward": phases["forward"] + round(4 * step_ms * MS),
                "backward": phases["backward"] + round(6 * step_ms * MS),
                "evaluate": phases["evaluate"] + MS,
            }
            writer.append(Samples("step_time", "ns", [round(step_ms * MS)] * 10))
            writer.append(
                Evaluation(
                    sum(phases.values()),
                    10 * epoch,
                    float(epoch),
                    10 * batch * epoch,
                    {"validation": quality},
                    (1 + seed * 1e-6) / epoch,
                    dict(phases),
                )
            )
        if status == "interrupted":
            return writer.path
        writer.append(Measurement("peak_memory", "bytes", 64.0 * 2**20, "vmhwm-reset"))
        writer.append(Measurement("energy", "J", None, None, "no counter here"))
        writer.append(Measurement("cpu_utilisation", "share", None, None, "not measured here"))
        writer.append(Measurement("untrained_quality", "top1", 0.1, "64 validation examples, after the run"))
        last = {"validation": qualities[-1], "test": qualities[-1] - 0.01}
        total = sum(phases.values())
        sights = [Sight(at, (ns, ns), (ns, ns), (ns, ns), None) for at, ns in ((0, 0), (len(qualities), total))]
        witness = Witness(sights)
        writer.append(End(status, total, phases, last, suspect=list(suspect), witness=witness))
    return writer.path


REACHES = [0.90, 0.95, 0.962, 0.965]


@pytest.fixture
def store(tmp_path):
    """Two arms of five runs: the second takes 1.5 times as long a step."""
    folder = tmp_path / "store"
    for seed in range(5):
        noise = 1 + 0.01 * ((seed * 7) % 5 - 2)
        write_run(folder, specification(), seed, f"aaaa000{seed}", REACHES, noise, minute=2 * seed + seed % 2)
        write_run(
            folder, specification("torch"), seed, f"bbbb000{seed}", REACHES, 1.5 * noise, minute=2 * seed + 1 - seed % 2
        )
    return folder


@pytest.fixture
def write(tmp_path):
    """Write one more run into the store: ``write(seed, identity, qualities, framework=..., threshold=..., ...)``."""

    def add(seed, identity, qualities=REACHES, step_ms=1.0, machine="m1", status="done", suspect=(), planned=0, **spec):
        place = tmp_path / "store", specification(**spec), seed, identity
        return write_run(*place, qualities, step_ms, machine, status, minute=59, suspect=suspect, planned=planned)

    return add


@pytest.fixture
def call(capsys):
    """Call the program in this process: exit code, standard output, standard error."""

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


PLAIN_TERMINAL = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch):
    for name, value in PLAIN_TERMINAL.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["levelbench"])


@pytest.fixture(params=[80, 120])
def width(request, monkeypatch, plain_terminal):
    """The columns of a terminal, usual and wide: lines are folded as on one."""
    monkeypatch.setenv("COLUMNS", str(request.param))
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    return request.param


@pytest.fixture(scope="module")
def call_once():
    """As ``call``, for what the tests of a module share: a fixture of a module runs before those of its tests."""

    def run(*words):
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name, value in PLAIN_TERMINAL.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["levelbench"])
            with pytest.raises(SystemExit) as ended:
                main([str(word) for word in words])
        return ended.value.code, out.getvalue(), err.getvalue()

    return run
