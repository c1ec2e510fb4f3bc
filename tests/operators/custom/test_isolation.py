"""An operator that crashes, hangs or exits does no harm, and is reported."""

import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from levelbench.errors import CheckFailedError, DataError, DefinitionError, MissingError, UnsupportedError, UsageError
from levelbench.operators.custom import CustomOperator
from levelbench.operators.custom.isolation import read_arrays, run_isolated, write_arrays

X = np.ones(4, np.float32)


@pytest.fixture
def written(tmp_path):
    def write(body, head=""):
        (tmp_path / "mine.py").write_text(
            f"import numpy as np\nfrom levelbench.operators.custom import CustomOperator\n{head}\n"
            f"class Mine(CustomOperator):\n    def forward(self, x):\n        {body}\n"
        )
        return tmp_path / "mine.py"

    return write


def test_outputs_and_gradients_come_back_unchanged(compiled_operators):
    a = np.random.default_rng(0).standard_normal((3, 4))
    found = run_isolated(compiled_operators["SumProduct"], (a, a), gradients=(None, np.ones_like(a)))
    np.testing.assert_array_equal(found.outputs[1], a * a)
    np.testing.assert_array_equal(found.input_gradients[0], a)
    assert found.outputs[0].dtype == np.float64


def test_attributes_are_those_of_the_operator(compiled_operators):
    found = run_isolated(compiled_operators["Scale"](factor=5.0, mode="bare"), (X,))
    assert found.outputs[0].tolist() == [5, 5, 5, 5]
    assert found.input_gradients is None


def test_a_segfault_is_reported_with_its_signal_and_stage(compiled_operators):
    with pytest.raises(CheckFailedError, match="its backward was ended by SIGSEGV") as error:
        run_isolated(compiled_operators["Crash"], (X,), gradients=(X,))
    assert "host.py" in error.value.trace


@pytest.mark.slow
def test_an_endless_loop_is_stopped_at_the_time_limit(compiled_operators):
    with pytest.raises(CheckFailedError, match="its forward did not finish in 2 s"):
        run_isolated(compiled_operators["Endless"], (X,), timeout_s=2.0)


def test_outputs_that_are_not_written_are_poisoned(compiled_operators):
    (y,) = run_isolated(compiled_operators["Border"], (X,)).outputs
    np.testing.assert_array_equal(y, [np.nan, 1, 1, np.nan])


def test_levelbench_errors_are_raised_unchanged(compiled_operators):
    with pytest.raises(UnsupportedError, match="written for float32, float64, float16"):
        run_isolated(compiled_operators["Square"], (np.ones(3, np.int8),))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("raise ValueError('no such luck')", "its forward raised ValueError: no such luck"),
        ("import os; os._exit(4)", "its forward ended the process with status 4"),
        ("import sys; sys.exit(0)", "its forward raised SystemExit"),
        ("import os; os.abort()", "SIGABRT"),
    ],
)
def test_other_failures_are_reported_too(written, body, text):
    with pytest.raises(CheckFailedError, match=text):
        run_isolated(written(body), (X,))


def test_printed_output_is_not_mistaken_for_the_result(written):
    found = run_isolated(written("print('{}' * 1000); return 2 * x"), (X,))
    assert found.outputs[0].tolist() == [2, 2, 2, 2]


def test_child_processes_end_with_the_operator(written, tmp_path):
    place = str(tmp_path / "pid")
    body = (
        f"import subprocess; started = subprocess.Popen(['sleep', '60']); open({place!r}, 'w').write(str(started.pid))"
    )
    run_isolated(written(f"{body}; return x"), (X,))
    assert gone(int((tmp_path / "pid").read_text()))


def gone(process):
    """Whether it ends within a second; a zombie counts as ended."""
    for _ in range(100):
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_a_file_that_does_not_exist_is_missing(tmp_path):
    with pytest.raises(MissingError):
        run_isolated(tmp_path / "none.py", (X,))


def test_a_file_with_several_operators_needs_a_name(written):
    head = "class Other(CustomOperator):\n    def forward(self, x):\n        return x\n"
    path = written("return -x", head)
    with pytest.raises(UsageError, match="Other, Mine"):
        run_isolated(path, (X,))
    assert run_isolated(path, (X,), name="Mine").outputs[0][0] == -1


def test_a_class_that_is_not_in_a_file_cannot_be_isolated():
    made = type("Loose", (CustomOperator,), {"forward": lambda self, x: x, "__module__": "nowhere"})
    with pytest.raises(DefinitionError, match="not in a file"):
        run_isolated(made, (X,))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "complex64", ">f8"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_arrays_survive_a_round_trip(tmp_path, dtype, shape):
    assert ml_dtypes.bfloat16
    array = np.asarray(np.random.default_rng(0).standard_normal(shape)).astype(dtype)
    (found, none) = read_arrays(tmp_path, write_arrays(tmp_path, "x", [array, None]))
    assert none is None
    assert found.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    "said",
    [
        {"file": "x-0", "dtype": "O", "shape": [1]},
        {"file": "x-0", "dtype": "float32", "shape": [5]},
        {"file": "../x-0", "dtype": "float32", "shape": [1]},
        {"file": "x-0", "dtype": "no such type", "shape": [1]},
    ],
)
def test_an_array_that_does_not_match_its_description_is_never_read(tmp_path, said):
    inner = tmp_path / "inner"
    inner.mkdir()
    write_arrays(tmp_path if said["file"].startswith("..") else inner, "x", [np.ones(1, np.float32)])
    with pytest.raises(DataError):
        read_arrays(inner, [said])
