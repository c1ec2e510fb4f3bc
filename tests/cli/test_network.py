"""``levelbench network``: what it refuses, and small benchmarks from the command to the figures, resumed."""

import json

import pytest
from onnx import TensorProto, helper

from levelbench.cli.network_words import make_cases, name_network, transform_lists
from levelbench.errors import LevelbenchError, UsageError
from levelbench.experiments import networks
from levelbench.networks import zoo
from levelbench.networks.files import save

DQN = ("network", "dqn", "--framework", "numpy", "--budget-s", "0.05", "-n", "1")


@pytest.fixture
def model(tmp_path):
    """A small network as a file."""
    network = zoo.mlp(4, 3, 2)
    path = tmp_path / "small.onnx"
    save(network.stored(network.initialise(0)), path)
    return path


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("dqm",), 2, "close: dqn"),
        (("missing.onnx",), 3, "missing.onnx"),
        (("model.py",), 2, "model.py:build"),
        (("missing.py:build",), 3, "no file missing.py"),
        (("dqn", "--framework", "nunpy"), 2, "close: numpy"),
        (("dqn", "--framework", "numpy:eagre"), 2, "close: eager"),
        (("dqn", "--framework", ","), 2, "names no framework"),
        (("dqn", "--framework", "numpy", "--device", "cuda"), 3, "numpy runs on cpu only"),
        (("dqn", "--batch", "0"), 2, "at least one sample"),
        (("dqn", "--batch", "1,x"), 2, "not a list of numbers"),
        (("dqn", "--batch", "-1"), 2, "not a list of numbers"),
        (("dqn", "--size", "batch=3"), 2, "--batch 3"),
        (("dqn", "--size", "length=3"), 2, "no open size of dqn"),
        (("gpt2-tiny", "--size", "lenth=3"), 2, "close: length"),
        (("gpt2-tiny", "--size", "length"), 2, "--size length=128"),
        (("dqn", "--option", "actions"), 2, "NAME=VALUE"),
        (("dqn", "--option", "action=3"), 2, "close: actions"),
        (("dqn", "--shape", "x=1x2"), 2, "no input of dqn"),
        (("dqn", "-n", "0"), 2, "at least one process"),
        (("dqn", "--budget-s", "0"), 2, "not positive"),
        (("dqn", "--margin", "2"), 2, "2 per cent"),
        (("dqn", "--framework", "numpy", "--until-clear"), 2, "a verdict compares two"),
        (("dqn", "--framework", "numpy", "--effect", "0.1"), 2, "add --until-clear"),
        (("dqn", "--framework", "numpy", "--budget", "1min"), 2, "add --until-clear"),
        (("dqn", "--framework", "numpy", "--until-clear", "-n", "5"), 2, "leave -n out"),
        (("dqn", "--framework", "numpy", "--until-clear", "--effect", "0"), 2, "not above zero"),
        (("dqn", "--loss", "mse"), 2, "add --direction backward"),
        (("dqn", "--plot", "a.pdf"), 2, ".svg or .png"),
        (("dqn", "--transform", "microbach"), 2, "close: microbatch"),
        (("dqn", "--transform", "microbatch"), 2, "--memory 2GiB"),
        (("dqn", "--memory", "2GiB"), 2, "--transform microbatch"),
        (("dqn", "--transform", "microbatch", "--memory", "two"), 2, "not a number of bytes"),
        (("dqn", "--transform", "microbatch", "--memory", "0"), 2, "must be above zero"),
        (("dqn", "--top", "0"), 2, "top"),
    ],
)
def test_a_command_that_cannot_be_meant_is_answered_in_three_parts(call, tmp_path, monkeypatch, words, code, says):
    monkeypatch.chdir(tmp_path)
    found, out, err = call("network", *words, "--store", tmp_path / "store")
    assert found == code, err
    assert [line.split(":")[0].strip() for line in err.strip().splitlines()[-3:]] == ["error", "found", "do"]
    assert says in err
    assert not list(tmp_path.rglob("*.jsonlines"))
    assert "Traceback" not in out + err


def test_a_folder_is_no_network(call, tmp_path):
    code, _, err = call("network", tmp_path)
    assert code == 2
    assert "it is a folder" in err


@pytest.mark.parametrize("content", [b"", b"no model", b"\x08\x0a" * 40])
def test_a_broken_model_is_the_files_fault(call, tmp_path, content):
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    code, _, err = call("network", path, "--framework", "numpy", "--store", tmp_path / "store")
    assert code == 2
    assert "broken.onnx" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("option", ["--csv", "--markdown", "--plot"])
def test_a_place_that_cannot_be_written_is_found_before_anything_is_measured(call, tmp_path, option):
    (tmp_path / "file").write_text("")
    code, out, err = call(*DQN, option, tmp_path / "file" / "out.svg", "--store", tmp_path / "store")
    assert code == 3
    assert "file" in err
    assert "ceilings" not in out + err
    assert not (tmp_path / "store").exists()


def test_a_folder_for_a_file_is_found_before_anything_is_measured(call, tmp_path):
    code, _, err = call(*DQN, "--csv", tmp_path, "--store", tmp_path / "store")
    assert code == 2
    assert "it is a folder" in err
    assert not (tmp_path / "store").exists()


def test_a_store_that_cannot_be_written_is_said_before_anything_is_measured(call, tmp_path):
    store = tmp_path / "file"
    store.write_text("")
    code, _, err = call(*DQN, "--store", store)
    assert code == 3
    assert str(store) in err
    assert "measuring the ceilings" not in err


def test_a_shape_binds_the_batch_and_has_to_agree_with_it(call, tmp_path):
    words = ("network", "dqn", "--framework", "numpy", "--shape", "input=2x4x84x84", "--store", tmp_path)
    code, _, err = call(*words, "--batch", "3")
    assert code == 2
    assert "--shape says 2" in err


def test_the_batch_of_a_model_that_fixes_it_is_that(tmp_path):
    node = helper.make_node("Relu", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy")
    model = helper.make_model(helper.make_graph([node], "fixed", [x], [y]), ir_version=10)
    (tmp_path / "fixed.onnx").write_bytes(model.SerializeToString())
    named = name_network(str(tmp_path / "fixed.onnx"), ())
    assert [case.batch for case in make_cases(named, None, (), ())] == [4]
    with pytest.raises(UsageError, match="fixed at 4"):
        make_cases(named, "1", (), ())


@pytest.mark.parametrize(
    ("words", "memory", "lists"),
    [
        ([], None, []),
        (["fuse,dead-nodes"], None, [("fuse", "dead-nodes")]),
        (["fuse", "dead-nodes"], None, [("fuse", "dead-nodes")]),
        (["precision:bfloat16"], None, [("precision:bfloat16",)]),
        (["microbatch"], "2GiB", [("microbatch;memory=2147483648",)]),
        (
            ["fuse,microbatch"],
            "1MiB,1MB",
            [("fuse", "microbatch;memory=1048576"), ("fuse", "microbatch;memory=1000000")],
        ),
    ],
)
def test_each_limit_of_memory_makes_a_list_of_transforms(words, memory, lists):
    assert transform_lists(words, memory) == lists


@pytest.mark.parametrize("memory", ["2 apples", "-1GiB", "GiB", "1e999GiB"])
def test_what_is_no_amount_of_memory_is_refused(memory):
    with pytest.raises(LevelbenchError):
        transform_lists(["microbatch"], memory)


@pytest.fixture
def known_ceilings(monkeypatch):
    """The machine's ceilings take seconds, and have tests of their own."""
    one = {"interval": None, "n": 1, "statistic": "single value"}
    found = {"flop_s": {"float32": {"value": 100e9, **one}}, "bandwidth_b_s": {"triad": {"value": 10e9, **one}}}
    monkeypatch.setattr(networks, "_ceilings", lambda plan, store, watcher: found)


@pytest.mark.slow
@pytest.mark.usefixtures("known_ceilings")
def test_a_network_is_measured_shown_written_and_resumed(call, tmp_path, model):
    store = tmp_path / "store"
    words = ("network", model, *DQN[2:], "--batch", "1,2", "--store", store, "--plot", tmp_path / "figures")
    code, out, err = call(*words, "--csv", tmp_path / "t.csv", "--markdown", tmp_path / "t.md", "--json")
    assert code == 0, err
    found = json.loads(out)
    result = found["cases"][0]["results"]["numpy"]
    assert result["status"] == "measured"
    assert result["facts"]["parameters"] == 4 * 3 + 3 + 3 * 2 + 2
    assert result["latency"]["p50"]["estimate"]["value"] > 0
    assert {row["type"] for row in result["types"]} == {"Relu", "Gemm"}
    assert len(list(store.rglob("*.jsonlines"))) == 2
    assert "small,numpy,eager" in (tmp_path / "t.csv").read_text()
    assert "Gemm" in (tmp_path / "t-operators.csv").read_text()
    assert "before the first result" in (tmp_path / "t.md").read_text()
    code, out, err = call(*words)
    assert code == 0, err
    assert "2 processes wanted · 2 done · 0 to go" in out
    assert "batch 2 · numpy" in out
    assert "sum of operators" in out
    assert "numpy: 2 measured" in out
    pytest.importorskip("matplotlib")
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        "small-forward-breakdown.svg",
        "small-forward-latency.svg",
    }


def test_help_names_every_option(call):
    """What it imports is asked of every verb in tests/test_house.py."""
    _, out, _ = call("network", "--help")
    for option in ("--framework", "--batch", "--size", "--shape", "--transform", "--memory", "--by", "--top", "--plot"):
        assert option in out
