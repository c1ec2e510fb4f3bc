from itertools import count

import msgspec
import pytest

from levelbench.records import RunGroup, RunSummary, Specification
from levelbench.records.schema import Target

IDS = count()


@pytest.fixture(scope="session")
def specification():
    return Specification("digits", "mlp", "numpy", "cpu", {}, Target("top1", 0.9), "confirmed", "wall", "1 epoch", 9.0)


@pytest.fixture(scope="session")
def run(specification):
    """A run that reached: ``run(time_s, samples, seed=0, **replaced)``; one third forward, the rest backward."""

    def make(time_s, samples=1000, seed=0, **replaced):
        reached = time_s is not None
        known = time_s or 1.0
        number = next(IDS)
        base = RunSummary(
            id=f"{number:08x}",
            key="k",
            task="digits",
            recipe="mlp",
            framework="numpy",
            device="cpu",
            settings={},
            seed=seed,
            status="done",
            reached=reached,
            target=specification.target,
            crossing="confirmed",
            clock="wall",
            time_to_accuracy_s=time_s,
            given_up_s=None if reached else 5.0,
            excluded_s={},
            epochs_to_target=samples / 100 if reached else None,
            samples_to_target=samples if reached else None,
            steps_to_target=samples // 10 if reached else None,
            time_per_step_s=0.001,
            phases_s={"forward": known / 3, "backward": 2 * known / 3},
            quality={"validation": 0.95, "test": 0.94},
            peak_memory_bytes=None,
            energy_j=None,
            energy_method=None,
            energy_reason="none",
            environment={"machine": {"id": "m1"}},
            started=f"2026-01-01T00:00:{seed:02d}.{number:06d}+00:00",
            wall_s=known,
            error=None,
            suspect=[],
            path="p",
            synthetic=False,
        )
        return msgspec.structs.replace(base, **replaced)

    return make


@pytest.fixture(scope="session")
def group(specification):
    def make(label, runs, **replaced):
        return RunGroup(label, label, msgspec.structs.replace(specification, **replaced), tuple(runs))

    return make
