import pytest

from levelbench.distributed.finding import load_schemes, named_scheme, settings_of
from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.errors import DefinitionError, UnknownNameError, UsageError

MINE = """
from dataclasses import dataclass
from levelbench.distributed.schemes.parameter_server import ParameterServer
from levelbench.distributed.scheme import Scheme

@dataclass(frozen=True)
class Mine(ParameterServer):
    name = "mine"
    extra: int = 1
"""


@pytest.fixture
def write(tmp_path):
    def add(text):
        path = tmp_path / "mine.py"
        path.write_text(text)
        return path

    return add


def test_what_is_called_scheme_is_taken(write):
    (found,) = load_schemes(write(MINE + "other = Mine(1)\nscheme = Mine(2)\n")).items()
    assert (found[0], found[1].servers) == ("mine", 2)


def test_else_all_that_are_made(write):
    assert list(load_schemes(write(MINE + "one = Mine(1)\ntwo = Mine(2)\n"))) == ["one", "two"]


def test_else_its_own_classes_with_their_defaults(write):
    (found,) = load_schemes(write(MINE)).items()
    assert (found[0], found[1].extra) == ("Mine", 1)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("x = 1\n", DefinitionError, "defines no scheme"),
        ("x = 1\ny = x / 0\n", DefinitionError, "ZeroDivisionError: division by zero at line 2"),
        (
            MINE.replace("int = 1", "int").replace("Mine(ParameterServer)", "Mine(Scheme)"),
            DefinitionError,
            "has no start",
        ),
        (MINE + "    def __post_init__(self):\n        raise ValueError('no')\n", DefinitionError, "ValueError: no at"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(write, text, error, message):
    with pytest.raises(error, match=message):
        load_schemes(write(text))


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        load_schemes(tmp_path / "gone.py")


def test_a_name_with_settings_is_made():
    assert named_scheme("all-reduce", {"bucket_mb": 2.0}) == AllReduce(bucket_mb=2.0)


def test_an_alias_is_a_name():
    assert named_scheme("dsgd", {}) == AllReduce()


def test_an_unknown_setting_answers_with_those_that_there_are():
    with pytest.raises(UnknownNameError, match="bucket_mb"):
        named_scheme("all-reduce", {"buckets_mb": 2.0})


def test_a_value_of_another_type_is_refused():
    with pytest.raises(UsageError, match="of type float"):
        named_scheme("all-reduce", {"bucket_mb": "much"})


def test_a_whole_number_is_taken_for_a_float():
    assert settings_of(named_scheme("all-reduce", {"bucket_mb": 2}))["bucket_mb"] == 2.0


def test_one_of_a_file_is_named_after_a_colon_by_its_own_name_or_that_in_the_file(write):
    path = write(MINE)
    assert type(named_scheme(str(path))).__name__ == "Mine"
    assert settings_of(named_scheme(f"{path}:mine", {"extra": 4})) == {"servers": 1, "extra": 4}
    assert settings_of(named_scheme(f"{path}:Mine", {"extra": 4})) == {"servers": 1, "extra": 4}
    with pytest.raises(UnknownNameError, match="mine"):
        named_scheme(f"{path}:yours")


def test_a_scheme_that_the_file_makes_keeps_its_settings(write):
    assert named_scheme(str(write(MINE + "scheme = Mine(2)\n")), {"extra": 3}).servers == 2


def test_a_setting_of_a_type_that_no_command_can_write_is_refused(write):
    path = write(MINE.replace("extra: int = 1", "extra: tuple = ()"))
    with pytest.raises(DefinitionError, match="of none of the types"):
        settings_of(named_scheme(str(path)))
