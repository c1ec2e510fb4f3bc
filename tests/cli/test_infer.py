"""``levelbench infer``: what it refuses, and one network trained, kept, measured, resumed and told from the command."""

import json

import numpy as np
import pytest
from tests.records.inference_records import specification, write

from levelbench.cli.infer_verb import _code
from levelbench.cli.infer_words import frameworks_of, scenario_settings
from levelbench.cli.options import seconds
from levelbench.errors import UsageError
from levelbench.experiments.inference.processes import _carry_out
from levelbench.networks import zoo
from levelbench.networks.files import save
from levelbench.records import Store
from levelbench.records.inference import Audit, InferenceRecord
from levelbench.records.inference_summary import summarise_inference

TASK = '''
"""A task of a user's own."""
from levelbench.networks import zoo
from levelbench.training import Momentum, Recipe, Shuffled, Task, Top1, datasets

task = Task("mine", data=datasets.digits, quality=Top1(target=0.5))


@task.recipe
def small(hidden: int = 8, lr: float = 0.05, epochs: int = 2) -> Recipe:
    """Small."""
    return Recipe(zoo.mlp(64, hidden, 10), Shuffled(64), Momentum(lr), epochs=epochs)
'''
OPTIONS = {
    "scenario": "single-stream", "qps": None, "bound": None, "find_peak": False, "quantile": None,
    "samples_per_query": None, "batch": None, "workers": None, "duration": "5s", "queries": None, "samples": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("digit",), 2, "close: digits"),
        (("missing.onnx",), 3, "missing.onnx"),
        (("digits[hiden=3]",), 2, "close: hidden"),
        (("digits", "--recipe", "mpl"), 2, "close: mlp"),
        (("digits", "--framework", "nunpy"), 2, "close: numpy"),
        (("digits", "--framework", "numpy", "--device", "cuda"), 3, "cpu only"),
        (("digits", "--framework", ","), 2, "it names no framework"),
        (("digits", "--scenario", "server"), 2, "--bound 15ms"),
        (("digits", "--scenario", "server", "--bound", "15ms"), 2, "--find-peak"),
        (("digits", "--scenario", "server", "--bound", "15ms", "--qps", "2", "--find-peak"), 2, "give one of them"),
        (("digits", "--scenario", "server", "--bound", "15ms", "--qps", "0"), 2, "impossible rate"),
        (("digits", "--scenario", "server", "--bound", "soon", "--qps", "2"), 2, "impossible time"),
        (("digits", "--scenario", "server", "--bound", "1s", "--qps", "1e6"), 2, "10,000,000 queries"),
        (("digits", "--qps", "3"), 2, "belongs to server"),
        (("digits", "--samples-per-query", "3"), 2, "belongs to multi-stream"),
        (("digits", "--batch", "8"), 2, "have one sample each"),
        (("digits", "--quantile", "90"), 2, "did you mean 0.9"),
        (("digits", "--quantile", "1.5"), 2, "it is not between 0 and 1\n"),
        (("digits", "--scenario", "server", "--bound", "15", "--qps", "2"), 2, "write --bound 15ms or --bound 15s"),
        (("digits", "--target-accuracy", "95"), 2, "did you mean 0.95"),
        (("lenet5", "--target-accuracy", "0.9"), 2, "synthetic inputs have no right answers"),
        (("digits", "--duration", "0"), 2, "impossible time"),
        (("digits", "-n", "0"), 2, "at least one process"),
        (("digits", "--quality-share", "99"), 2, "not a share"),
        (("digits", "--framework", "numpy", "--until-clear"), 2, "a verdict compares two"),
        (("digits", "--framework", "numpy", "--effect", "0.1"), 2, "add --until-clear"),
        (("digits", "--framework", "numpy", "--budget", "1min"), 2, "add --until-clear"),
        (("digits", "--framework", "numpy", "--until-clear", "-n", "5"), 2, "leave -n out"),
        (("digits", "--framework", "numpy", "--until-clear", "--effect", "0"), 2, "not above zero"),
        (("digits", "--price-per-hour", "-1"), 2, "impossible price"),
        (("digits", "--price-source", "here"), 2, "no price is given"),
        (("digits", "--plot", "a.pdf"), 2, ".svg or .png"),
        (("digits", "--labels", "l"), 2, "a task has its own data"),
        (("digits", "--data", "here"), 2, "the folder would be ignored"),
        (("digits", "--run", "latest", "--train-seed", "1"), 2, "the run itself says"),
        (("gpt2-tiny", "--prompt", "4"), 2, "add --generate"),
        (("gpt2-tiny", "--generate", "400"), 2, "a row has 128 tokens"),
        (("lenet5", "--generate", "4"), 3, "give a language model"),
        (("digits", "--generate", "4", "--scenario", "server", "--bound", "1s", "--find-peak"), 2, "give a rate"),
        (
            ("gpt2-tiny", "--generate", "4", "--scenario", "multi-stream", "--batch", "2"),
            2,
            "to be continued at once",
        ),
        (("lenet5", "--recipe", "mlp"), 2, "trained elsewhere"),
        (("lenet5", "--data", "missing.npz"), 3, "no such file"),
        (("lenet5", "--labels", "l"), 2, "add --data"),
        (("translation-en-es",), 3, "token by token"),
        (("cartpole",), 3, "actions, which decide"),
    ],
)
def test_a_command_that_cannot_be_meant_is_answered_in_three_parts(call, tmp_path, monkeypatch, words, code, says):
    monkeypatch.chdir(tmp_path)
    found, out, err = call("infer", *words, "--store", tmp_path / "store")
    assert found == code, err
    assert [line.split(":")[0].strip() for line in err.strip().splitlines()[-3:]] == ["error", "found", "do"]
    assert says in err
    assert not list(tmp_path.rglob("*.jsonl*"))
    assert "Traceback" not in out + err


@pytest.mark.parametrize(
    ("text", "value"), [("15ms", 0.015), ("2", 2.0), ("0.5 s", 0.5), ("2min", 120.0), (".5us", 5e-7), ("1h", 3600.0)]
)
def test_a_time_is_read_with_its_unit(text, value):
    assert seconds("--duration", text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "ms", "-1s", "nan", "1e3s", "1 day", "1s2"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(UsageError, match="impossible time"):
        seconds("--duration", text)


@pytest.mark.parametrize(
    ("given", "quantile", "queries", "batch"),
    [
        ({}, 0.9, 64, 1),
        ({"scenario": "multi-stream"}, 0.99, 662, 8),
        ({"scenario": "multi-stream", "samples_per_query": 2}, 0.99, 662, 2),
        ({"scenario": "server", "qps": 2.0, "bound": "1s"}, 0.99, 662, 1),
        ({"scenario": "offline"}, 0.99, 0, 32),
        ({"scenario": "dawnbench"}, 0.99, 1, 1),
        ({"quantile": 0.99}, 0.99, 662, 1),
        ({"queries": 5}, 0.9, 5, 1),
    ],
)
def test_each_scenario_has_loadgens_quantile_and_as_many_queries_as_early_stopping_needs(
    given, quantile, queries, batch
):
    found = scenario_settings({**OPTIONS, **given})
    assert (found.quantile, found.queries, found.batch) == (quantile, queries, batch)


def test_a_model_whose_batch_is_fixed_has_that_batch():
    assert scenario_settings({**OPTIONS, "scenario": "offline"}, 4).batch == 4
    with pytest.raises(UsageError, match="fixed at 4"):
        scenario_settings({**OPTIONS, "scenario": "offline", "batch": 8}, 4)
    with pytest.raises(UsageError, match="one sample at a time"):
        scenario_settings({**OPTIONS, "scenario": "dawnbench"}, 4)


@pytest.mark.parametrize(("passed", "code"), [((True, True), 0), ((True, None), 4), ((None, False), 1)])
def test_an_audit_that_cannot_tell_is_code_4_unless_something_is_broken(tmp_path, passed, code):
    audits = [Audit(f"audit {at}", each, "so") for at, each in enumerate(passed)]
    assert _code(summarise_inference([[write(tmp_path, specification(), audits=audits)]])) == code


def test_frameworks_carry_their_modes_and_threads():
    (arm,) = frameworks_of("numpy:eager", "cpu", 2, "torch")
    assert arm.title == "numpy:eager with 2 threads"


def test_a_network_is_trained_once_kept_measured_and_resumed(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(TASK)
    words = ("--framework", "numpy", "--duration", "0.1s", "--store", "store", "-n", "1")
    code, out, err = call(
        "infer",
        "mine.py[framework=numpy]",
        *words,
        "--price-per-hour",
        "3.6",
        "--markdown",
        "out.md",
        "--csv",
        "out.csv",
    )
    assert code == 0, out + err
    assert "training it now" in out
    assert "mine[small], single-stream" in out
    assert "$ per million" in (tmp_path / "out.md").read_text()
    assert (tmp_path / "out.csv").read_text().count("\n") == 2
    (model,) = (tmp_path / "store" / "models").glob("*.onnx")
    (run,) = Store(tmp_path / "store").records()
    (record,) = (tmp_path / "store" / "inference").rglob("*.jsonlines")
    found = InferenceRecord.read(record)
    # The answers by the measured path are as good as those of the training run, to the last one.
    assert found.accuracy.value == run.end.quality["test"] == found.header.specification.model.quality
    assert found.header.specification.model.run == run.header.id
    before = model.stat().st_mtime_ns

    code, out, err = call(*("infer", "mine.py", *words, "--run", run.header.id, "--json", "--target-accuracy", "0.999"))
    assert code == 1, err
    assert "1 done · 0 to go" in err
    told = json.loads(out)
    assert told["results"][0]["quality"]["kept"] is False
    assert told["results"][0]["latency_s"]["p50"]["estimate"]["value"] > 0
    assert told["results"][0]["records"] == [str(record.relative_to(tmp_path))]
    assert model.stat().st_mtime_ns == before


@pytest.fixture
def in_this_process(monkeypatch):
    """What a fresh process would do, without the time that it takes to start."""

    def listen(module, job, note, on_note, silent_s):
        notes = []

        def tell(each):
            notes.append(each)
            on_note(each)

        _carry_out(job, tell)
        return [*notes, note(done=True)], 0, ""

    monkeypatch.setattr("levelbench.experiments.inference.processes.listen", listen)


def test_a_model_of_the_users_is_measured_with_its_data(call, tmp_path, monkeypatch, in_this_process):
    monkeypatch.chdir(tmp_path)
    network = zoo.mlp(4, 3, 2)
    save(network.stored(network.initialise(0)), tmp_path / "small.onnx")
    np.savez("data.npz", input=np.zeros((40, 4), np.float32), labels=np.zeros(40, np.int64))
    code, out, err = call(
        *("infer", "small.onnx", "--data", "data.npz", "--framework", "numpy", "--scenario", "dawnbench", "-n", "1"),
        *("--store", "store"),
    )
    assert code == 0, out + err
    assert "every sample once" in out
    assert "Data: data.npz, 40 examples" in out


def test_a_language_model_answers_with_tokens_whose_times_are_in_the_json(call, tmp_path, monkeypatch, in_this_process):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(
        *("infer", "gpt2-tiny", "--size", "length=10", "--samples", "20", "--generate", "4", "--framework", "numpy"),
        *("--scenario", "dawnbench", "-n", "1", "--store", "store", "--json"),
    )
    assert code == 0, out + err
    found = json.loads(out)
    assert found["generation"] == {"prompt": 6, "tokens": 4}
    (result,) = found["results"]
    first, each, whole = (
        result[name]["p50"]["estimate"]["value"] for name in ("first_token_s", "per_token_s", "latency_s")
    )
    assert 0 < first < whole
    assert 0 < each < whole
    rates = [result[name]["values"]["0"] for name in ("tokens_per_s", "throughput_per_s")]
    assert rates[0] == pytest.approx(4 * rates[1])


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"input": np.zeros((9, 3), np.float32)}, "shape"),
        ({"input": np.zeros((9, 4), np.float32), "labels": np.zeros(5, np.int64)}, "5, 9 rows"),
        ({"input": np.full((9, 4), np.nan, np.float32)}, "values are not finite"),
        ({"input": np.zeros((9, 4), np.float32), "labels": np.full(9, 7)}, "from 7 to 7"),
    ],
)
def test_data_that_cannot_be_meant_are_refused_before_anything_is_measured(call, tmp_path, monkeypatch, arrays, says):
    monkeypatch.chdir(tmp_path)
    network = zoo.mlp(4, 3, 2)
    save(network.stored(network.initialise(0)), tmp_path / "small.onnx")
    np.savez("data.npz", **arrays)
    code, out, err = call("infer", "small.onnx", "--data", "data.npz", "--framework", "numpy", "--store", "store")
    assert (code, out) == (2, "")
    assert says in err
    assert not list(tmp_path.rglob("*.jsonlines"))


def test_made_up_inputs_are_called_so_wherever_they_are_told(call, tmp_path, monkeypatch, in_this_process):
    monkeypatch.chdir(tmp_path)
    network = zoo.mlp(4, 3, 2)
    save(network.stored(network.initialise(0)), tmp_path / "small.onnx")
    words = ("infer", "small.onnx", "--framework", "numpy", "--duration", "1ms", "-n", "1", "--store", "store")
    code, out, err = call(*words)
    assert code == 0, out + err
    assert "MADE-UP INPUTS" in out
    assert "synthetic inputs have no right answers" in out
    _, out, _ = call(*words, "--json")
    assert json.loads(out)["results"][0]["facts"]["synthetic"] is True


@pytest.mark.parametrize(
    ("labels", "target", "says"), [(False, "0.9", "data.npz has no labels"), (True, "95", "did you mean 0.95")]
)
def test_a_target_that_no_answer_can_be_held_against_is_refused_before_measuring(
    call, tmp_path, monkeypatch, labels, target, says
):
    monkeypatch.chdir(tmp_path)
    network = zoo.mlp(4, 3, 2)
    save(network.stored(network.initialise(0)), tmp_path / "small.onnx")
    parts = {"labels": np.arange(40) % 2} if labels else {}
    np.savez("data.npz", input=np.zeros((40, 4), np.float32), **parts)
    code, _, err = call("infer", "small.onnx", "--data", "data.npz", "--target-accuracy", target, "--store", "store")
    assert code == 2
    assert says in err
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("target", "code"), [("0.0", 0), ("1.0", 1)])
def test_answers_that_are_not_good_enough_end_in_code_1(call, tmp_path, monkeypatch, in_this_process, target, code):
    monkeypatch.chdir(tmp_path)
    network = zoo.mlp(4, 3, 2)
    save(network.stored(network.initialise(0)), tmp_path / "small.onnx")
    rows = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    np.savez("data.npz", input=rows, labels=np.arange(40) % 2)
    found, out, _ = call(
        *("infer", "small.onnx", "--data", "data.npz", "--framework", "numpy", "--duration", "1ms", "-n", "1"),
        *("--store", "store", "--target-accuracy", target),
    )
    assert found == code
    assert ("NOT KEPT" in out) == bool(code)
