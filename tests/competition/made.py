"""The machine and the target of the runs that entries are made of."""

from __future__ import annotations

from levelbench.records import Target, read_record

TARGET = Target("top1", 0.96)
ENVIRONMENT = {
    "machine": {"id": "m1", "cpu": "a processor", "cores_allowed": 2, "memory_bytes": 2**30, "caches": [{"level": 1}]},
    "accelerators": {"names": ["V100", "V100"]},
    "libraries": {"numpy": "2.4", "python": {"version": "3.11"}},
    "git": {"commit": "0a1b2c3d4e", "dirty": False},
    "load": {"one_minute": 0.1},
}


def records(*paths):
    return [read_record(path) for path in paths]
