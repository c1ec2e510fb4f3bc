"""Specifications of benchmarks of a small network, and the machine that they run on."""

from msgspec.structs import replace

from levelbench.experiments.kernel import make_plan
from levelbench.experiments.networks import NetworkBenchmarks
from levelbench.records.networks import NetworkArm, NetworkCase, NetworkSpecification

NOW = {"machine": {"id": "m1"}, "libraries": {"numpy": "2.4"}}


def specification(framework="numpy", batch=1, path="", **parts):
    case = NetworkCase("small", "file", batch, path=str(path))
    return replace(NetworkSpecification("small", case, NetworkArm(framework), budget_s=0.1, samples=20), **parts)


def plan_of(grid, count, store, environment=NOW, **options):
    arms = [each for row in grid for each in row]
    return make_plan(NetworkBenchmarks(store), arms, range(count), environment, cases=len(grid), **options)
