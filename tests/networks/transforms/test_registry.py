import pytest

from levelbench.errors import UnknownNameError, UsageError
from levelbench.networks import transforms

NAMES = ["batch", "dead-nodes", "fold-batchnorm", "fold-constants", "fuse", "microbatch", "precision"]


def test_all_transforms_exist_by_name():
    assert transforms.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_has_a_summary_and_settings(name):
    assert transforms.summary(name)
    assert all(each.kind is each.KEYWORD_ONLY for each in transforms.settings(name).values())


def test_an_unknown_name_is_refused_with_similar_names():
    with pytest.raises(UnknownNameError, match="fold-batchnorm"):
        transforms.make("fold-batchnorms")


def test_an_unknown_setting_is_refused_with_similar_names():
    with pytest.raises(UnknownNameError, match="memory"):
        transforms.make("microbatch", memroy="1GiB", batch=1)


def test_a_missing_setting_is_named():
    with pytest.raises(UsageError, match="it needs 'memory'"):
        transforms.make("microbatch", batch=1)


def test_several_are_parsed_from_one_word():
    found = transforms.parse("fold-constants,precision:bfloat16", batch=3)
    assert [each.name for each in found] == ["fold-constants", "precision"]


@pytest.mark.parametrize("text", ["", "fuse,", "fuse:gelu", "precision:", "precision:float7", "nothing"])
def test_invalid_text_is_refused(text):
    with pytest.raises(UsageError):
        transforms.parse(text)


def test_a_setting_that_none_of_them_has_is_refused():
    with pytest.raises(UsageError, match="none of fuse has it"):
        transforms.parse("fuse", memory="1GiB")


def test_a_setting_of_none_counts_as_not_given():
    assert len(transforms.parse("fuse", memory=None, batch=None)) == 1


def test_each_works_on_the_result_of_the_previous(residual, backend):
    chain = transforms.parse("fold-constants,fold-batchnorm,dead-nodes,microbatch", batch=5, memory=100_000)
    values = transforms.random_parameters(residual)
    steps = transforms.apply_all([*chain[:3]], residual, values)
    assert [each.name for each in steps] == ["fold-constants", "fold-batchnorm", "dead-nodes"]
    transforms.check_equivalence(
        residual,
        steps[-1].network,
        backend,
        parameters=values,
        after_parameters=steps[-1].parameters,
        tolerance=steps[1].tolerance,
    )


def test_settings_may_come_as_words(residual):
    make = transforms.make
    assert make("fuse", patterns="gelu+gemm", opset="23").apply(residual).network.opsets[""] == 23
    assert "7 bits" in make("precision", dtype="int8", weight_bits="7").apply(residual).changed[0]
    assert make("fold-constants", batch="2", most_bytes="0").apply(residual).network.inputs[0].shape[0] == 2
    assert make("microbatch", memory="1GiB", batch="3").plan(residual).batch == 3


@pytest.mark.parametrize(
    "settings", [{"name": "fuse", "opset": "new"}, {"name": "microbatch", "memory": "1GiB", "batch": "-1"}]
)
def test_a_word_that_is_not_a_number_is_refused(settings):
    with pytest.raises(UsageError, match="not a whole number"):
        transforms.make(**settings)
