"""Specifications of benchmarks of a small network, and the machine that they run on."""

from msgspec.structs import replace

from levelbench.records.networks import NetworkArm, NetworkCase, NetworkSpecification

NOW = {"machine": {"id": "m1"}, "libraries": {"numpy": "2.4"}}


def specification(framework="numpy", batch=1, path="", **parts):
    case = NetworkCase("small", "file", batch, path=str(path))
    return replace(NetworkSpecification("small", case, NetworkArm(framework), budget_s=0.1, samples=20), **parts)
