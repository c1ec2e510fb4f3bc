"""Networks by name, with options that are checked before anything is built."""

import inspect

import pytest

from levelbench.errors import DefinitionError, LevelbenchError, UnknownNameError, UsageError
from levelbench.networks import Network, zoo


def test_an_option_changes_the_network():
    assert zoo.build("resnet20", classes=100).outputs[0].shape == ("batch", 100)


@pytest.mark.parametrize(
    ("name", "options", "error", "says"),
    [
        ("resnet19", {}, UnknownNameError, "resnet18"),
        ("resnet20", {"clases": 3}, UnknownNameError, "classes"),
        ("resnet20", {"classes": "many"}, UsageError, "must be a whole number"),
        ("resnet20", {"classes": True}, UsageError, "must be a whole number"),
        ("resnet20", {"classes": -3}, DefinitionError, "-3"),
    ],
)
def test_invalid_options_are_refused_with_the_reason(name, options, error, says):
    with pytest.raises(error, match=says):
        zoo.build(name, **options)


def outcome(name, options):
    try:
        return zoo.build(name, **options)
    except LevelbenchError as error:
        return error


@pytest.mark.parametrize("name", ["lenet5", "gpt2-tiny", "vit-tiny", "deepspeech2-tiny", "lstm-lm-small"])
@pytest.mark.parametrize("value", [0, -1, 10**9])
def test_any_integer_option_gives_a_network_or_a_clear_error(name, value):
    for option, parameter in inspect.signature(zoo.entry(name).build).parameters.items():
        if type(parameter.default) is int and (value < 1000 or option in ("classes", "vocabulary")):
            assert isinstance(outcome(name, {option: value}), Network | LevelbenchError)
