"""Good files for ``fuzz_readers.py`` to mutate: an entry, logs of LoadGen and of MLPerf, a ruleset, a claim."""

from __future__ import annotations

import json

from levelbench.competition.entries import (
    Author,
    Hardware,
    Inference,
    Submission,
    SubmittedCurve,
    SubmittedRun,
    SystemPrice,
)
from levelbench.records.schema import Target

__all__ = ["ANSWERS", "CLAIM", "DETAIL", "DIALECTS", "POINTS", "RULES", "SUMMARY", "SYSTEM", "entry"]


def entry(mode: str = "training") -> Submission:
    curve = SubmittedCurve([10.0, 20.0, 30.0], [0.5, 0.945, 0.95], [1.0, 2.0, 3.0])
    measured = Inference("dawnbench", 10000, 10000, 20.0, 0.002, {"0.5": 0.002, "0.9": 0.003}, quality=0.95)
    return Submission(
        schema=1,
        ruleset="dawnbench-1.0",
        task="cifar10",
        mode="training" if mode == "training" else "inference",
        author=Author("A. Author", "a@example.org"),
        submitted="2020-01-02",
        model="ResNet 9",
        framework="PyTorch",
        hardware=Hardware("1 V100"),
        target=Target("top1", 0.94, split="test"),
        clock="dawnbench",
        crossing="first",
        price=SystemPrice(3.06, "https://example.org/prices", "2020-01-01", True),
        runs=[SubmittedRun(curve, seed=1), SubmittedRun(curve, seed=2)] if mode == "training" else [],
        inference=[measured] if mode == "inference" else [],
        settings={"lr": 0.1, "batch": 128},
    )


RULES = "\n".join(
    [
        *('id = "mine-1.0"', 'name = "mine"', 'version = "1.0"', 'date = "2026-01-01"', 'source = "here"'),
        *('clock = "wall"', 'crossing = "first"', "[aggregation]", 'rule = "first-run"', "runs = 1"),
        *("[[tasks]]", 'task = "digits"', "[tasks.target]", 'metric = "top1"', "threshold = 0.97", ""),
    ]
)
LINE = "=" * 48
SUMMARY = f"""{LINE}
MLPerf Results Summary
{LINE}
SUT name : PySUT
Scenario : SingleStream
Mode     : PerformanceOnly
90.0th percentile latency (ns) : 1100000
Result is : VALID
{LINE}
Additional Stats
{LINE}
QPS w/ loadgen overhead         : 900.5
Mean latency (ns)               : 1000000
50.00 percentile latency (ns)   : 1000000
{LINE}
Test Parameters Used
{LINE}
samples_per_query : 1
"""
DETAIL = "".join(
    f':::MLLOG {{"key": "{key}", "value": {value}, "time_ms": 1.5, "namespace": "mlperf::logging", "event_type": '
    f'"POINT_IN_TIME", "metadata": {{"is_error": false, "is_warning": false, "file": "x", "line_no": 1}}}}\n'
    for key, value in (("result_validity", '"VALID"'), ("result_mean_latency_ns", 1000000))
)
ANSWERS = (
    '[\n{ "seq_id" : 0, "qsl_idx" : 3, "data" : "00000000" },\n{ "seq_id" : 1, "qsl_idx" : 4, "data" : "07" }\n]\n'
)
_EVENTS = (
    ("submission_benchmark", "resnet"),
    ("init_start", None),
    ("seed", 7),
    ("run_start", None),
    ("eval_accuracy", 0.5),
    ("eval_accuracy", 0.76),
    ("run_stop", {"status": "success"}),
)
DIALECTS = {
    "v0.5": "".join(
        f":::MLPv0.5.0 resnet 155863761{at}.483 (a.py:3) {key}" + (f": {json.dumps(value)}\n" if value else "\n")
        for at, (key, value) in enumerate(_EVENTS)
    ),
    "v0.6": "".join(
        f":::MLL 155863761{at}.483 {key}: "
        + json.dumps({"value": value, "metadata": {"file": "a.py", "lineno": 3}})
        + "\n"
        for at, (key, value) in enumerate(_EVENTS)
    ),
}
SYSTEM = json.dumps(
    {"submitter": "Ada", "division": "open", "system_name": "2 boxes", "number_of_nodes": "2", "framework": "PyTorch"}
    | {"accelerators_per_node": "8", "accelerator_model_name": "V100", "host_memory_capacity": "1.5 TB"}
)
POINTS = json.dumps(
    {"resnet_1632": {"Benchmark": "resnet", "BS": 1632, "Hyperparams": {}, "Epochs to converge": [34, 35, 35.5, 36]}}
)
CLAIM = """title = "94 % in 3 s"
task = "cifar10"

[[sides]]
name = "fast"
time_s = 2.6
time_of = "target"

[sides.quality]
metric = "top1"
value = 0.9401
target = 0.94
"""
