"""``levelbench operator``: what it refuses, and one small benchmark from the command to the figure, resumed."""

import json
import subprocess
import sys
import time

import pytest
from tests.operators.benchmark.tricks import COMMAND, HEAD

from levelbench.experiments import operators as benchmarks
from levelbench.operators.frameworks import load_framework
from levelbench.records.benchmarks import BenchmarkRecord

RELU = ("operator", "Relu", "--shape", "X=64", "--framework", "numpy", "--budget-s", "0.02")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((), 2, "neither is given"),
        (("Relu", "--suite", "deepbench-gemm"), 2, "both are given"),
        (("--suite", "deepbench-gem"), 2, "close: deepbench-gemm"),
        (("--suite", "deepbench-gemm", "--subset", "trainin"), 2, "close: training"),
        (("--suite", "deepbench-all-reduce"), 2, "not a single operator"),
        (("--suite", "deepbench-gemm", "--match", "nothing"), 2, "there is none"),
        (("--suite", "deepbench-gemm", "--limit", "0"), 2, "at least one problem"),
        (("--suite", "deepbench-gemm", "--shape", "X=4"), 2, "define their own"),
        (("Relu",), 2, "its inputs are X"),
        (("Relu", "--shape", "X=4", "--dtype", "float31"), 2, "float32"),
        (("Relu", "--shape", "X=4", "--opset", "99"), 2, "from 13 to"),
        (("Relu", "--shape", "X=4", "--framework", "nunpy"), 2, "close: numpy"),
        (("Relu", "--shape", "X=4", "--framework", ","), 2, "names no framework"),
        (("Relu", "--shape", "X=4", "--framework", "numpy", "--device", "cuda"), 3, "numpy runs on cpu only"),
        (("Relu", "--shape", "X=4", "-n", "0"), 2, "at least one process"),
        (("Relu", "--shape", "X=4", "--beside", "torch"), 2, "no file of your own"),
        (("Relu", "--shape", "X=4", "--layout", "nhwc"), 2, "'nhwc' is no layout"),
        (("Relu", "--shape", "X=4", "--framework", "numpy", "--layout", "channels_last"), 2, "no input has four or"),
        (("Relu", "--shape", "X=1x2x3x4", "--framework", "numpy", "--layout", "channels-last"), 3, "ONNX's layout"),
        (("none.py", "--beside", "numpy"), 3, "there is no such file"),
        (("none.py", "--beside", ","), 2, "names no framework"),
        (("none.py", "--beside", "nunpy"), 2, "close: numpy"),
        (("none.py", "--suite", "deepbench-gemm"), 2, "do not go with a file"),
        (("none.py", "--limit", "2"), 2, "problems of a suite"),
        (("Relu", "--shape", "X=4", "--budget-s", "0"), 2, "not positive"),
        (("Relu", "--shape", "X=4", "--plot", "a.pdf"), 2, ".svg or .png"),
        (("Relu", "--shape", "X=4", "--margin", "2"), 2, "2 per cent"),
        (("Relu", "--shape", "X=4", "--framework", "numpy", "--until-clear"), 2, "a verdict compares two"),
        (("Relu", "--shape", "X=4", "--framework", "numpy", "--effect", "0.1"), 2, "add --until-clear"),
        (("Relu", "--shape", "X=4", "--framework", "numpy", "--budget", "1min"), 2, "add --until-clear"),
        (("Relu", "--shape", "X=4", "--framework", "numpy", "--until-clear", "-n", "5"), 2, "leave -n out"),
        (("Relu", "--shape", "X=4", "--framework", "numpy", "--until-clear", "--effect", "0"), 2, "not above zero"),
    ],
)
def test_a_command_that_cannot_be_meant_is_answered_in_three_parts(call, tmp_path, words, code, says):
    found, out, err = call("operator", *words, "--store", tmp_path / "store")
    assert found == code, err
    assert [line.split(":")[0].strip() for line in err.strip().splitlines()[-3:]] == ["error", "found", "do"]
    assert says in err
    assert not list(tmp_path.rglob("*.jsonlines"))
    assert "Traceback" not in out + err


@pytest.mark.slow
def test_a_benchmark_is_measured_shown_written_and_resumed(call, tmp_path):
    store = tmp_path / "store"
    code, out, err = call(*RELU, "-n", "2", "--store", store, "--csv", tmp_path / "t.csv", "--json")
    found = json.loads(out)
    assert code == 0, err
    result = found["problems"][0]["results"]["numpy"]
    assert (result["status"], len(result["times_s"]), result["errors"]["linf"]) == ("measured", 2, 0.0)
    assert set(found["ceilings"]["flop_s"]) == {"float32", "float64"}
    assert (tmp_path / "t.csv").read_text().count("\n") >= 2
    assert len(list(store.rglob("*.jsonlines"))) == 2
    code, out, err = call(*RELU, "-n", "2", "--store", store)
    assert code == 0, err
    assert "2 processes wanted · 2 done · 0 to go" in out
    assert "Relu X=64" in out
    assert "numpy: 1 measured" in out
    assert "roofline: " in out


OWN = """
import numpy as np

from levelbench.operators.custom import CustomOperator


class Mine(CustomOperator):
    same_as = "Relu"

    def forward(self, x):
        return np.maximum(x, 0)

    def reference(self, x):
        return np.where(x > 0, x, 0)

    def examples(self, random):
        yield (random.standard_normal((4, 8)).astype(np.float32),)


class Unknown(Mine):
    has_reference = False
"""


def told_ceilings(monkeypatch):
    process = benchmarks._process

    def told(job, starter, on_note=None):
        if job.seed is not None:
            return process(job, starter, on_note)
        return [benchmarks.Note(ceilings={"flop_s": {}, "bandwidth_b_s": {}})]

    monkeypatch.setattr(benchmarks, "_process", told)


@pytest.mark.slow
def test_operators_that_are_measured_a_third_time_under_the_same_conditions_are_a_doubt(call, tmp_path):
    words = (*RELU, "-n", "3", "--fresh", "--store", tmp_path / "store")
    assert ["numpy had been measured 2 times" in call(*words)[1] for _ in range(3)] == [False, False, True]


@pytest.mark.slow
def test_an_operator_of_a_file_is_measured_beside_the_frameworks_own(call, tmp_path, monkeypatch):
    told_ceilings(monkeypatch)
    path = tmp_path / "own.py"
    path.write_text(OWN)
    words = (
        "operator",
        f"{path}:Mine",
        "--beside",
        "numpy",
        "-n",
        "3",
        "--budget-s",
        "0.05",
        "--store",
        tmp_path / "s",
    )
    code, out, err = call(*words, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["frameworks"], found["baselines"]) == (["numpy", "Mine on numpy"], ["numpy", "numpy"])
    (problem,) = found["problems"]
    mine, beside = problem["results"]["Mine on numpy"], problem["results"]["numpy"]
    assert (mine["status"], beside["status"]) == ("measured", "measured"), (mine, beside)
    assert (mine["errors"]["linf"], beside["verdict"]) == (0.0, None)
    assert mine["verdict"]["ratio"] > 1
    code, out, err = call(*words)
    assert "6 done · 0 to go" in out, err
    assert "numpy/numpy" in out  # its header may be folded after "Mine on"
    path.write_text(f"{OWN}\n# changed\n")
    code, out, err = call(*words)
    assert "0 done · 6 to go" in out, err


@pytest.mark.slow
def test_layouts_are_arms_of_one_command_and_stand_in_the_records(call, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    told_ceilings(monkeypatch)
    words = ("operator", "Conv", "--shape", "X=1x2x4x4", "--shape", "W=2x2x3x3", "--framework", "torch,numpy")
    words = (*words, "--layout", "channels_first,channels_last", "-n", "1", "--budget-s", "0.05", "--json")
    code, out, err = call(*words, "--store", tmp_path / "s")
    assert code == 0, err
    found = json.loads(out)
    assert found["frameworks"] == ["torch", "torch channels_last", "numpy"]
    assert found["layouts"] == [None, "channels_last", None]
    assert "no channels_last on numpy" in found["left_out"]
    assert {each["status"] for each in found["problems"][0]["results"].values()} == {"measured"}
    records = [BenchmarkRecord.read(path).header for path in (tmp_path / "s").rglob("*.jsonlines")]
    told = {(each.specification.framework, each.specification.layout): each.key for each in records}
    assert sorted(told, key=str) == [("numpy", None), ("torch", "channels_last"), ("torch", None)]
    assert len(set(told.values())) == 3


CHANNELS = """
import torch

from levelbench.operators.custom import CustomOperator


class Copy(CustomOperator):
    array_api = True

    def forward(self, x):
        if not x.is_contiguous(memory_format=torch.channels_last):
            raise ValueError("its channels are not last")
        return x + 0

    def reference(self, x):
        return x

    def examples(self, random):
        yield (random.standard_normal((2, 3, 4, 5)).astype("float32"),)
"""


@pytest.mark.slow
def test_an_operator_of_a_file_gets_its_inputs_in_the_layout_that_is_asked_for(call, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    told_ceilings(monkeypatch)
    (tmp_path / "own.py").write_text(CHANNELS)
    words = ("operator", tmp_path / "own.py", "--framework", "torch", "--layout", "channels_last", "-n", "1", "--json")
    code, out, err = call(*words, "--budget-s", "0.05", "--store", tmp_path / "s")
    result = json.loads(out)["problems"][0]["results"]["Copy on torch channels_last"]
    assert (code, result["status"], result["reason"]) == (0, "measured", ""), err


@pytest.mark.slow
def test_an_operator_without_a_reference_gets_no_verdict_and_no_success(call, tmp_path, monkeypatch):
    told_ceilings(monkeypatch)
    (tmp_path / "own.py").write_text(OWN)
    words = (f"{tmp_path / 'own.py'}:Unknown", "--beside", "numpy", "-n", "3", "--budget-s", "0.05")
    code, out, err = call("operator", *words, "--store", tmp_path / "s", "--json")
    assert code == 4, err
    mine = json.loads(out)["problems"][0]["results"]["Unknown on numpy"]
    assert (mine["status"], mine["verdict"]) == ("unchecked", None)


def test_onnx_runtime_calls_an_operator_of_a_file_inside_a_session(call, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime_extensions")
    told_ceilings(monkeypatch)
    (tmp_path / "own.py").write_text(OWN)
    words = (f"{tmp_path / 'own.py'}:Mine", "--beside", "onnxruntime", "-n", "1", "--budget-s", "0.1")
    code, out, err = call("operator", *words, "--store", tmp_path / "s", "--json")
    assert code == 0, err
    results = json.loads(out)["problems"][0]["results"]
    assert {name: each["status"] for name, each in results.items()} == {
        "onnxruntime": "measured",
        "Mine on onnxruntime": "measured",
    }


def test_without_the_package_that_calls_operators_of_a_file_onnx_runtime_says_how_to_get_it(
    call, tmp_path, monkeypatch
):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(type(load_framework("onnxruntime")), "lacks_custom", lambda _: ("no package", "pip install it"))
    (tmp_path / "own.py").write_text(OWN)
    words = (f"{tmp_path / 'own.py'}:Mine", "--framework", "onnxruntime", "--store", tmp_path / "s")
    code, _, err = call("operator", *words)
    assert (code, "no package" in err, "pip install it" in err) == (3, True, True)


WEAKENS = """
import time

import numpy as np

real = np.maximum


def slow(*given, **more):
    time.sleep(0.001)
    return real(*given, **more)


np.maximum = slow
"""


@pytest.mark.slow
def test_a_file_cannot_slow_down_what_is_measured_beside_it(call, tmp_path, monkeypatch):
    told_ceilings(monkeypatch)
    (tmp_path / "own.py").write_text(WEAKENS + OWN.replace("np.maximum(x, 0)", "real(x, 0)"))
    words = (f"{tmp_path / 'own.py'}:Mine", "--beside", "numpy", "-n", "1", "--budget-s", "0.05")
    code, out, err = call("operator", *words, "--store", tmp_path / "s", "--json")
    assert code == 1, err
    results = json.loads(out)["problems"][0]["results"]
    assert results["numpy"]["status"] == "measured"
    assert results["numpy"]["time"]["value"] < 1e-3
    assert results["Mine on numpy"]["status"] == "refused"
    assert "numpy.maximum" in results["Mine on numpy"]["reason"]


@pytest.mark.slow
def test_until_clear_looks_and_its_records_keep_the_wider_interval(call, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    told_ceilings(monkeypatch)
    words = (*RELU[:4], "--framework", "numpy,torch", "--budget-s", "0.02", "--store", tmp_path)
    code, out, err = call(*words, "--until-clear", "--budget", "1", "--effect", "0.1")
    assert code == (4 if "UNCLEAR" in out else 0), err
    assert "after 5 processes each: torch " in out
    records = [BenchmarkRecord.read(path) for path in tmp_path.rglob("*.jsonlines")]
    assert {(each.header.planned_effect, each.header.planned_runs) for each in records} == {(0.1, 5)}
    assert len(records) == 10
    code, out, err = call(*words, "-n", "5", "--json")
    assert code == 0, err
    verdict = json.loads(out)["problems"][0]["results"]["torch"]["verdict"]
    assert verdict["level"] > 0.95
    assert "look 1 of --until-clear" in verdict["reason"]


# The command, but told the machine's ceilings: measuring them takes seconds, and is shown above.
WITH_CEILINGS = """
import sys
from levelbench.cli import main
from levelbench.experiments import operators as benchmarks
from levelbench.experiments.operators import Note

process = benchmarks._process


def told(job, starter, on_note=None):
    if job.seed is not None:
        return process(job, starter, on_note)
    return [Note(ceilings={"flop_s": {}, "bandwidth_b_s": {}})]


benchmarks._process = told
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_after_kill_9_nothing_is_half_written_and_the_same_command_goes_on(tmp_path):
    words = [sys.executable, "-c", WITH_CEILINGS, *RELU, "-n", "1", "--store", str(tmp_path)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(6000):
            if list(tmp_path.rglob("*-s0-*.jsonlines")) or process.poll() is not None:
                break
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    kept = list(tmp_path.rglob("*.jsonlines"))
    assert kept
    assert all(BenchmarkRecord.read(path).header.specification.framework == "numpy" for path in kept)
    # The child dies with its parent, a moment later.
    while any(BenchmarkRecord.read(path).status == "running" for path in kept):
        time.sleep(0.01)
    again = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert again.returncode == 0, again.stderr
    assert "numpy: 1 measured" in again.stdout


def test_help_names_every_option(call):
    """What it imports is asked of every verb in tests/test_house.py."""
    _, out, _ = call("operator", "--help")
    for option in (
        "--suite",
        "--subset",
        "--shape",
        "--input",
        "--attr",
        "--cache",
        "--direction",
        "--limit",
        "--plot",
    ):
        assert option in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["MatMul", "--shape", "A=3x4", "--shape", "B=5x6"], "Incompatible dimensions"),
        (["Conv", "--shape", "X=8x64", "--shape", "W=64x64x3x3"], "at least 3 dimensions"),
        (["Relu", "--shape", "X=4", "--subset", "training"], "they choose problems of a suite"),
        (["ReduceSum", "--shape", "data=4x4", "--input", "axes=0.5"], "not fractions"),
    ],
)
def test_shapes_and_values_that_do_not_fit_are_the_users_to_correct(call, words, says):
    code, _, err = call("operator", *words, "--framework", "numpy")
    assert code == 2
    assert says in err


def test_a_store_that_cannot_be_written_is_said_before_anything_is_measured(call, tmp_path):
    store = tmp_path / "file"
    store.write_text("")
    code, out, err = call("operator", "Relu", "--shape", "X=4", "--framework", "numpy", "--store", store)
    assert code == 3
    assert "ceiling" not in out
    assert str(store) in err


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMAND)
def test_a_file_that_changes_more_than_its_results_is_refused_by_the_command(name, call, tmp_path):
    source, words = COMMAND[name]
    path = tmp_path / "own.py"
    path.write_text(HEAD + source)
    words_of = ("--framework", "numpy", "-n", "1", "--budget-s", "0.1", "--store", tmp_path / "store")
    code, out, err = call("operator", path, *words_of)
    assert code == 1, out + err
    assert words in err
