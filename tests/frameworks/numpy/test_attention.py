import numpy as np
import pytest
from tests.frameworks.numpy.arrays import normal

from levelbench.frameworks.numpy.operators import linear

torch = pytest.importorskip("torch")
attend = torch.nn.functional.scaled_dot_product_attention


def heads(queries=4, keys=4, queries_in=5, keys_in=6, size=3, value=2):
    """Q, K and V of two samples."""
    return (
        normal(2, queries, queries_in, size),
        normal(2, keys, keys_in, size, seed=1),
        normal(2, keys, keys_in, value, seed=2),
    )


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_attention_and_its_gradients_match_torch(scale, key_heads, same_as_torch):
    def reference(q, k, v):
        return attend(q, k, v, scale=scale, enable_gqa=True)

    options = {} if scale is None else {"scale": scale}
    same_as_torch(reference, "Attention", *heads(keys=key_heads), **options)


def test_blocks_of_heads_add_up(monkeypatch, same_as_torch):
    monkeypatch.setattr(linear, "_BLOCK", 1)
    same_as_torch(lambda q, k, v: attend(q, k, v, enable_gqa=True), "Attention", *heads(keys=2))


def test_inputs_of_rank_3_hold_their_heads_side_by_side(same_as_torch):
    def split(x, count):
        return x.unflatten(2, (count, -1)).transpose(1, 2)

    def reference(q, k, v):
        return attend(split(q, 4), split(k, 2), split(v, 2), enable_gqa=True).transpose(1, 2).flatten(2)

    arrays = normal(2, 5, 12), normal(2, 6, 6, seed=1), normal(2, 6, 8, seed=2)
    same_as_torch(reference, "Attention", *arrays, q_num_heads=4, kv_num_heads=2)


def test_a_causal_query_sees_no_later_key(same_as_torch):
    same_as_torch(lambda q, k, v: attend(q, k, v, is_causal=True), "Attention", *heads(keys_in=5), is_causal=1)


@pytest.mark.parametrize("shape", [(6,), (5, 6), (4, 1, 6), (2, 1, 5, 6), (2, 4, 5, 6)], ids=str)
def test_a_mask_of_floats_is_added_and_has_a_gradient(shape, same_as_torch):
    def reference(q, k, v, mask):
        return attend(q, k, v, mask.expand(2, 4, 5, 6))

    same_as_torch(reference, "Attention", *heads(), normal(*shape, seed=3))


def test_a_mask_that_is_too_short_forbids_the_rest(same_as_torch):
    def reference(q, k, v, mask):
        return attend(q, k[:, :, :4], v[:, :, :4], mask)

    same_as_torch(reference, "Attention", *heads(), normal(5, 4, seed=3))


def test_a_boolean_mask_forbids(same_as_torch):
    mask = normal(2, 1, 5, 6, seed=3) > -0.5
    same_as_torch(attend, "Attention", *heads(), mask)


def test_a_query_that_may_see_nothing_puts_out_zero(run, pull):
    q, k, v = heads()
    mask = np.ones((5, 6), bool)
    mask[2] = False
    y = run("Attention", q, k, v, mask)
    assert not y[:, :, 2].any()
    assert np.isfinite(y).all()
    for gradient in pull("Attention", q, k, v, mask, gradient=np.ones_like(y))[:3]:
        assert np.isfinite(gradient).all()


def test_a_soft_cap_bends_the_scores_before_the_mask(same_as_torch):
    def reference(q, k, v, mask):
        scores = 0.7 * torch.tanh(q @ k.transpose(2, 3) / 3**0.5 / 0.7)
        return torch.softmax(scores + mask, 3) @ v

    same_as_torch(reference, "Attention", *heads(), normal(5, 6, seed=3), softcap=0.7, rtol=1e-6)


def test_cached_keys_come_before_and_shift_the_causal_frontier(same_as_torch):
    def reference(q, k, v, _, past_k, past_v):
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        mask = torch.ones(5, 9, dtype=torch.bool).tril(3)
        return attend(q, k, v, mask, enable_gqa=True), k, v

    past = normal(2, 2, 3, 3, seed=4), normal(2, 2, 3, 2, seed=5)
    arrays = [*heads(keys=2), None, *past]
    same_as_torch(reference, "Attention", *arrays, outputs=("y", "present_key", "present_value"), is_causal=1)


def test_the_valid_length_of_each_sample_hides_the_padding(same_as_torch):
    def reference(q, k, v, _, __, ___, lengths):
        mask = torch.arange(6) < lengths[:, None, None, None]
        return attend(q, k, v, mask)

    same_as_torch(reference, "Attention", *heads(), None, None, None, np.array([6, 3]), opset=24)


def test_a_window_hides_keys_that_are_far_away(same_as_torch):
    def reference(q, k, v):
        distance = torch.arange(5)[:, None] - torch.arange(6)
        return attend(q, k, v, (distance <= 2) & (distance >= -1))

    same_as_torch(reference, "Attention", *heads(), left_window_size=2, right_window_size=1, opset=25)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_the_scores_that_a_mode_shows_have_gradients_too(mode, same_as_torch):
    def reference(q, k, v, mask):
        raw = q @ k.transpose(2, 3) / 3**0.5
        capped = 0.7 * torch.tanh(raw / 0.7)
        biased = capped + mask
        weights = torch.softmax(biased, 3)
        return weights @ v, k * 1, v * 1, (raw, capped, biased, weights)[mode]

    outputs = ("y", "present_key", "present_value", "scores")
    options = {"outputs": outputs, "softcap": 0.7, "qk_matmul_output_mode": mode}
    same_as_torch(reference, "Attention", *heads(), normal(5, 6, seed=3), **options, rtol=1e-6)


def test_narrow_attention_is_computed_in_float32_and_rounded_once(run):
    arrays = [each.astype(np.float16) for each in heads()]
    wide = run("Attention", *[each.astype(np.float32) for each in arrays])
    np.testing.assert_array_equal(run("Attention", *arrays), wide.astype(np.float16))
