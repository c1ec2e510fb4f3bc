"""What language networks depend on: padding is ignored, and later tokens do not change earlier outputs."""

import math

import numpy as np
import pytest
from tests.networks.zoo.compared import shaken
from tests.networks.zoo.languages import (
    small_bert,
    small_gpt2,
    small_llama,
    small_lstm_lm,
    small_moe,
    small_transformer,
)

from levelbench.networks import zoo
from levelbench.operators.frameworks import open_framework


def test_a_language_model_that_carries_its_state_continues_where_it_stopped():
    network, whole = small_lstm_lm(carries_state=True), small_lstm_lm()
    parameters = shaken(network)
    ids = network.make_inputs(2, sizes={"length": 8})["input_ids"]
    executor = open_framework("numpy").executor(network, parameters)
    zeros = [np.zeros((1, 2, 8), np.float32)] * 4
    _, *states = executor.infer(ids[:, :5], *zeros)
    rest, *_ = executor.infer(ids[:, 5:], *states)
    (expected,) = open_framework("numpy").executor(whole, parameters).infer(ids)
    np.testing.assert_allclose(rest, expected[:, 5:], rtol=1e-4, atol=1e-5)


def test_berts_other_heads_have_the_shapes_of_their_tasks():
    inputs = {"length": 9}
    for head, shapes in {"question-answering": [(3, 9), (3, 9)], "classification": [(3, 2)]}.items():
        network = small_bert(head=head)
        outputs = open_framework("numpy").executor(network).infer(*network.make_inputs(3, sizes=inputs).values())
        assert [each.shape for each in outputs] == shapes


def test_padding_changes_nothing_for_the_tokens_of_bert():
    network = small_bert()
    executor = open_framework("numpy").executor(network, shaken(network))
    ids, types, mask = network.make_inputs(2, sizes={"length": 9}).values()
    mask[:] = np.arange(9) < 6
    hidden, pooled = executor.infer(ids, types, mask)
    short, short_pooled = executor.infer(ids[:, :6], types[:, :6], mask[:, :6])
    np.testing.assert_allclose(hidden[:, :6], short, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(pooled, short_pooled, rtol=1e-4, atol=1e-5)


def test_bert_attends_in_both_directions():
    network = small_bert()
    executor = open_framework("numpy").executor(network, shaken(network))
    ids, types, mask = network.make_inputs(1, sizes={"length": 9}).values()
    mask[:] = 1
    before, _ = executor.infer(ids, types, mask)
    after, _ = executor.infer(changed(ids, 8, 31), types, mask)
    assert np.abs(after - before)[:, 0].max() > 1e-3


def test_gpt2s_residual_layers_start_divided_by_the_root_of_their_number():
    weights = zoo.build("gpt2-tiny", width=256, layers=2).initialise(0)
    assert weights["block0.attention.input.weight"].std() == pytest.approx(0.02, rel=0.02)
    assert weights["block0.attention.output.weight"].std() == pytest.approx(0.02 / math.sqrt(4), rel=0.02)
    assert weights["block1.mlp.output.weight"].std() == pytest.approx(0.02 / math.sqrt(4), rel=0.02)


def test_padding_of_the_source_changes_nothing_for_the_target():
    network = small_transformer()
    executor = open_framework("numpy").executor(network, shaken(network))
    source, mask, target = network.make_inputs(2, sizes={"source": 9, "target": 7}).values()
    mask[:] = np.arange(9) < 5
    (padded,) = executor.infer(source, mask, target)
    (short,) = executor.infer(source[:, :5], mask[:, :5], target)
    np.testing.assert_allclose(padded, short, rtol=1e-4, atol=1e-5)


def changed(ids, at, vocabulary):
    other = ids.copy()
    other[:, at] = (other[:, at] + 1) % vocabulary
    return other


@pytest.mark.parametrize(
    ("network", "vocabulary"),
    [
        (small_lstm_lm(), 23),
        (small_gpt2(), 29),
        (small_llama(), 29),
        (small_moe(), 29),
        (small_transformer(), 29),
        (zoo.build("seq2seq", layers=2, width=8, source_vocabulary=17, target_vocabulary=19), 19),
        (zoo.build("gnmt", width=8, vocabulary=17), 17),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_a_later_token_changes_no_earlier_output(network, vocabulary):
    executor = open_framework("numpy").executor(network, shaken(network))
    *others, ids = network.make_inputs(2, sizes={"length": 8, "source": 6, "target": 8}).values()
    (before,) = executor.infer(*others, ids)
    (after,) = executor.infer(*others, changed(ids, 5, vocabulary))
    np.testing.assert_allclose(after[:, :5], before[:, :5], rtol=1e-5, atol=1e-6)
    assert np.abs(after - before)[:, 5].max() > 1e-3


@pytest.mark.parametrize("length", [1, 5, 12])
def test_one_executor_takes_any_length_up_to_the_number_of_positions(length):
    network = small_gpt2()
    executor = open_framework("numpy").executor(network)
    (logits,) = executor.infer(*network.make_inputs(2, sizes={"length": length}).values())
    assert logits.shape == (2, length, 29)
