"""Engines that only execute: one that is made of ONNX's reference, and what becomes of its faults."""

from __future__ import annotations

import builtins
import dis
import pickle
import subprocess
import sys
from time import perf_counter

import ml_dtypes
import numpy as np
import onnx
import pytest

from levelbench.errors import DefinitionError, MissingError, UnsupportedError
from levelbench.frameworks.engines import EngineBackend, OnnxEngine
from levelbench.frameworks.engines.iree import framework as iree
from levelbench.frameworks.engines.openvino import framework as openvino
from levelbench.frameworks.engines.reports import write_report
from levelbench.frameworks.engines.tinygrad import framework as tinygrad
from levelbench.frameworks.engines.tract import framework as tract
from levelbench.frameworks.engines.tvm import framework as tvm
from levelbench.networks import zoo
from levelbench.operators.conformance import collect_cases, try_case
from levelbench.operators.node import OperatorNode

ENGINES = (iree, openvino, tinygrad, tract, tvm)

pytestmark = pytest.mark.usefixtures("warm_node_cases")


class Reference(OnnxEngine):
    """ONNX's reference evaluator."""

    name = "reference"
    title = "Reference"
    package = "onnx"
    distribution = "onnx"

    @staticmethod
    def load(path):
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(path)
        return lambda inputs: evaluator.run(None, inputs)


class Faulty(Reference):
    """The same, but the first value of each output is one too large."""

    @staticmethod
    def load(path):
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(path)

        def run(inputs):
            found = evaluator.run(None, inputs)
            for each in found:
                each.flat[0] += 1
            return found

        return run


@pytest.fixture
def backend():
    return Reference().open()


def test_an_operator_is_compiled_once_for_each_shape(backend, monkeypatch):
    compiled = []
    load = Reference.load
    monkeypatch.setattr(Reference, "load", staticmethod(lambda path: compiled.append(path) or load(path)))
    add = backend.operator(OperatorNode("Add", ("a", "b"), ("c",)))
    for size in (2, 3, 2, 3):
        (found,) = add.forward(np.ones(size, np.float32), np.ones(size, np.float32))
        assert found.tolist() == [2.0] * size
    assert len(compiled) == 2


def test_structural_inputs_are_constants_of_the_model(backend):
    reshape = backend.operator(OperatorNode("Reshape", ("x", "shape"), ("y",)))
    x = np.arange(6, dtype=np.float32)
    for shape in ([2, 3], [3, 2], [2, 3]):
        assert reshape.forward(x, np.array(shape, np.int64))[0].shape == tuple(shape)


def test_a_network_gives_what_numpy_gives_also_after_a_parameter_has_changed(backend):
    from levelbench.frameworks.numpy.backend import NumpyBackend

    network = zoo.mlp(8, 4, 3)
    inputs = [np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)]
    ours, reference = (each.executor(network, trains=False) for each in (backend, NumpyBackend()))
    for _ in range(2):
        for found, expected in zip(ours.infer(*inputs), reference.infer(*inputs), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5)
        for executor in (ours, reference):
            name = next(iter(executor.parameters))
            executor.parameters[name] = 2 * np.asarray(executor.parameters[name])


def test_it_does_not_train(backend):
    executor = backend.executor(zoo.mlp(8, 4, 3))
    with pytest.raises(UnsupportedError, match="it only executes"):
        executor.forward(np.zeros((1, 8), np.float32), np.zeros(1, np.int64))


def test_what_an_engine_refuses_is_unsupported_in_its_own_words(backend):
    node = OperatorNode("Softmax", ("x",), ("y",), {"axis": 7})
    with pytest.raises(UnsupportedError, match="Softmax on Reference"):
        backend.operator(node).forward(np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: None, "gave None"),
        (lambda found: [], "a list of nothing. Return a list of 1 array, one for each output"),
        (lambda found: found[0], "a ndarray"),
        (lambda found: (None,), "a tuple of NoneType"),
        (lambda found: found * 2, "a list of ndarray, ndarray"),
    ],
)
def test_an_answer_that_is_no_list_of_the_outputs_is_refused_in_words(change, said):
    class Careless(Reference):
        @staticmethod
        def load(path):
            run = Reference.load(path)
            return lambda inputs: change(run(inputs))

    with pytest.raises(DefinitionError, match=f"Relu on Reference: the function that load returned .*{said}"):
        Careless().open().operator(OperatorNode("Relu", ("x",), ("y",))).forward(np.ones(3, np.float32))


@pytest.mark.parametrize("change", [lambda x: pickle.loads(pickle.dumps(x)), lambda x: x.astype(">f4")])
def test_arrays_of_another_process_or_byte_order_are_taken(backend, change):
    add = backend.operator(OperatorNode("Add", ("a", "b"), ("c",)))
    x = backend.array(change(np.arange(3, dtype=np.float32)))
    assert add.forward(x, x)[0].tolist() == [0, 2, 4]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.complex64, [("a", np.float32)], object])
def test_arrays_of_types_that_engines_lack_are_refused(backend, dtype):
    with pytest.raises(UnsupportedError, match="only the types of numbers"):
        backend.array(np.zeros(3, dtype))


def test_node_tests_pass(backend):
    found = [try_case(case, backend) for case in collect_cases(["Add", "Conv", "Reshape", "TopK", "LSTM"])]
    assert [(each.name, each.detail) for each in found if each.status == "wrong"] == []
    refused = {each.detail for each in found if each.status == "unsupported"}
    assert sum(each.status == "passed" for each in found) > 20, refused


def test_a_wrong_answer_becomes_a_report_whose_script_shows_it_without_us(tmp_path):
    (case,) = collect_cases(["Tanh"], "test_tanh_example")
    found = try_case(case, EngineBackend(Faulty()))
    assert found.status == "wrong", found.detail
    assert write_report(Faulty(), case, "it is one too large", tmp_path / "report")
    script = (tmp_path / "report" / "reproduce.py").read_text()
    assert "levelbench" not in script
    done = subprocess.run(
        [sys.executable, tmp_path / "report" / "reproduce.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "output 0: wrong float32 (3,)" in done.stdout
    page = (tmp_path / "report" / "README.md").read_text()
    assert "Tanh" in page
    assert "python reproduce.py" in page


class Rounded(Reference):
    """The same, but each value is off by some roundings of one."""

    @staticmethod
    def load(path):
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(path)
        return lambda inputs: [each + each.dtype.type(1e-6) for each in evaluator.run(None, inputs)]


def test_a_deviation_that_rounding_explains_is_no_report(tmp_path):
    (case,) = collect_cases(["Tanh"], "test_tanh_example")
    assert try_case(case, EngineBackend(Rounded())).status == "wrong"  # at the zero, by the test's own tolerance
    assert not write_report(Rounded(), case, "rounding", tmp_path / "report")


def test_what_a_script_does_not_show_is_no_report(tmp_path):
    (case,) = collect_cases(["Tanh"], "test_tanh_example")
    assert not write_report(Reference(), case, "nothing", tmp_path / "report")
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("engine", ENGINES, ids=lambda each: each.name)
def test_the_function_that_reports_take_over_needs_nothing_of_its_module(engine):
    codes = [engine.load.__code__]
    for code in codes:
        codes += [each for each in code.co_consts if hasattr(each, "co_code")]
        read = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
        assert read <= {*dir(builtins), "os"}  # which the script imports


@pytest.mark.parametrize("engine", ENGINES, ids=lambda each: each.name)
def test_an_engine_that_is_not_installed_says_how_to_get_it(engine, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingError, match=f"pip install {engine.distribution}"):
        engine.open()


def test_tinygrad_without_its_compiler_is_not_said_to_run(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(MissingError, match="clang, which tinygrad compiles with, is not installed: apt install clang"):
        tinygrad.open()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES, ids=lambda each: each.name)
def test_an_installed_engine_agrees_with_numpy_on_a_network(engine):
    if lacking := engine.lacks():
        pytest.skip(lacking)
    from levelbench.frameworks.numpy.backend import NumpyBackend

    network = zoo.build("lenet5")
    inputs = [network.make_inputs(2)[network.inputs[0].name]]
    found, expected = (each.executor(network, trains=False).infer(*inputs) for each in (engine.open(), NumpyBackend()))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)


class Timed(Reference):
    """It says how long each of its operators took."""

    operator_clock = "its own clock"

    @staticmethod
    def operator_times(path, inputs, repeats):
        names = [each.op_type for each in onnx.load(path).graph.node]
        return [(f"node {at}", name, 1e-3 * repeats) for at, name in enumerate(names)]


def test_times_of_operators_are_the_engines_own_and_of_no_node():
    executor = Timed().open().executor(zoo.mlp(8, 4, 3), trains=False)
    found = executor.operator_times(np.zeros((2, 8), np.float32), repeats=2)
    assert [each.title for each in found] == ["Gemm", "Relu", "Gemm"]
    assert {(each.index, each.times_s) for each in found} == {(-1, (2e-3,))}
    assert found[0].output == "node 0 in Reference"
    assert Timed().open().describe()["operator_clock"] == "its own clock"


def test_an_engine_without_times_of_operators_says_so(backend):
    executor = backend.executor(zoo.mlp(8, 4, 3), trains=False)
    with pytest.raises(UnsupportedError, match="it cannot distinguish them"):
        executor.operator_times(np.zeros((2, 8), np.float32))


@pytest.mark.slow
def test_times_of_openvinos_operators_fit_into_the_calls():
    if lacking := openvino.lacks():
        pytest.skip(lacking)
    network, repeats = zoo.build("lenet5"), 200
    executor = openvino.open().executor(network, trains=False)
    x = network.make_inputs(8)[network.inputs[0].name]
    started = perf_counter()
    found = executor.operator_times(x, repeats=repeats)
    whole = perf_counter() - started
    assert {"Convolution", "AvgPool"} <= {each.title for each in found}
    assert 0 < sum(each.times_s[0] for each in found) <= whole / repeats


TOGETHER = """
import sys

import numpy as np

from levelbench import plugins
from levelbench.operators.frameworks import load_framework
from levelbench.operators.node import operator_node

for name in sorted(plugins.names("framework"), reverse=sys.argv[1] == "backwards"):
    framework = load_framework(name)
    if framework.lacks() is None:
        backend = framework.open()
        x = backend.array(np.ones(3, np.float32))
        (found,) = backend.operator(operator_node("Add", ["a", "b"])).forward(x, x)
        print(name, backend.host(found).tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_all_that_are_installed_compute_in_one_process_in_either_order(order):
    done = subprocess.run([sys.executable, "-c", TOGETHER, order], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = [line.partition(" ")[2] for line in done.stdout.splitlines() if line.endswith("]")]
    assert len(answers) >= 1
    assert set(answers) == {"[2.0, 2.0, 2.0]"}
