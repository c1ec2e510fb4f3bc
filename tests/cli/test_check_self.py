"""``levelbench check --self-test`` on a small corpus of three operators."""

import json

import pytest

from levelbench.cli import check_self

OPERATORS = """
import numpy as np

from levelbench.checks.self_test import Planted
from levelbench.operators.custom import CustomOperator


class Doubles(CustomOperator):
    def forward(self, x):
        return x + x

    def reference(self, x):
        return 2 * x

    def examples(self, random):
        yield (random.standard_normal((3, 4)).astype(np.float32),)


class Triples(Doubles):
    def forward(self, x):
        return x + x + x


class InPlace(Doubles):
    def forward(self, x):
        x *= 2
        return x.copy()


CASES = {
    "Doubles": Planted(None),
    "Triples": Planted("a factor of 3 for 2", ("value",)),
    "InPlace": Planted("it changes its input", ("ASPECT",), held_back=True),
}
"""


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Write the only corpus; ``aspect`` is that of the last fault, which only another probe finds."""
    monkeypatch.setattr(check_self, "_CORPORA", tmp_path)

    def write(aspect="inputs-changed", text=OPERATORS):
        (tmp_path / "operators.py").write_text(text.replace("ASPECT", aspect))

    return write


@pytest.mark.slow
def test_faults_that_are_found_and_right_parts_that_pass_end_with_0(call, corpus):
    corpus()
    code, out, err = call("check", "--self-test", "operators", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)["kinds"]["operators"]
    assert found["counts"] == {"passed": 1, "right reason": 2}
    assert [(each["name"], each["held_back"]) for each in found["parts"]][-1] == ("InPlace", True)


@pytest.mark.slow
def test_a_fault_that_is_found_for_another_reason_is_named(call, corpus):
    corpus(aspect="special-values")
    code, out, _ = call("check", "--self-test", "operators")
    assert code == 1
    assert "operators InPlace: other reason: it changes its input (found by: " in out
    assert "held back" in out


@pytest.mark.slow
def test_a_right_part_that_is_accused_is_named(call, corpus):
    corpus(text=OPERATORS.replace("return x + x\n", "return x * 2.5\n"))
    code, out, _ = call("check", "--self-test", "operators")
    assert code == 1
    assert "operators Doubles: accused: it is right (found by: forward" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--self-test", "operatorz"], "operators"),
        (["mine.py", "--self-test", "operators"], "leave mine.py out"),
        (["--self-test", "operators", "--repeat", "3"], "--repeat"),
        ([], "name what to check"),
    ],
)
def test_what_means_nothing_is_refused(call, words, said):
    code, _, err = call("check", *words)
    assert code == 2
    assert said in err


def test_one_optimizer_of_a_file_is_checked(call, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from levelbench.training import Adam\none = Adam(0.1)\ntwo = Adam(0.2)\n")
    code, out, _ = call("check", f"{path}:two", "--framework", "numpy", "--json")
    assert (code, [each["name"] for each in json.loads(out)["reports"]]) == (0, ["two"])
    code, _, err = call("check", f"{path}:three")
    assert code == 2
    assert "three" in err


def test_a_communicator_of_a_file_is_checked(call, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from levelbench.distributed.communicators.wrapping import WrappingCommunicator\n\n\n"
        "class Lost(WrappingCommunicator):\n    def all_gather(self, array):\n        return (array,) * self.size\n"
    )
    code, out, _ = call("check", path, "--ranks", "2")
    assert code == 1
    assert "all-gather (2 ranks" in out
