"""The fast and the general path of an operator compute the same."""

import numpy as np
import pytest

from levelbench.operators.node import operator_node


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def run(backend, node, *inputs, structural=()):
    native = [each if at in structural or each is None else backend.array(each) for at, each in enumerate(inputs)]
    return [backend.host(each) for each in backend.operator(node).forward(*native)]


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize(("kind", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_kernel_and_a_loop_over_time_agree(torch_backend, kind, gates, direction, layout):
    count = 2 if direction == "bidirectional" else 1
    steps, batch, size = 4, 3, 5
    attributes = {"hidden_size": size, "direction": direction, "layout": layout}
    if kind == "GRU":
        attributes["linear_before_reset"] = 1
    x = draw(batch, steps, 2) if layout else draw(steps, batch, 2)
    hidden = draw(batch, count, size) if layout else draw(count, batch, size)
    inputs = [x, draw(count, gates * size, 2), draw(count, gates * size, size), draw(count, 2 * gates * size)]
    names, outputs = ["x", "w", "r", "b", "", "h"], ["y", "last"]
    kernel = run(torch_backend, operator_node(kind, names, outputs, **attributes), *inputs, None, hidden)
    # A clip that never applies keeps the values but selects the loop.
    loop = run(torch_backend, operator_node(kind, names, outputs, clip=1e6, **attributes), *inputs, None, hidden)
    for one, other in zip(kernel, loop, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_after_its_end_a_sequence_keeps_its_state(torch_backend):
    names = ["x", "w", "r", "b", "l"]
    x, w, r, b = draw(4, 2, 3), draw(1, 8, 3), draw(1, 8, 2), draw(1, 16)
    node = operator_node("LSTM", names, ["y", "h", "c"], hidden_size=2, direction="reverse")
    y, hidden, cell = run(torch_backend, node, x, w, r, b, np.array([4, 2], np.int32))
    short = run(torch_backend, node, x[:2, 1:], w, r, b, np.array([2], np.int32))
    np.testing.assert_allclose(y[:2, :, 1:], short[0], rtol=1e-5)
    np.testing.assert_array_equal(y[2:, :, 1], 0)
    np.testing.assert_allclose(hidden[:, 1:], short[1], rtol=1e-5)
    np.testing.assert_allclose(cell[:, 1:], short[2], rtol=1e-5)


def test_weights_changed_in_place_are_seen(torch_backend):
    node = operator_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=2)
    operator = torch_backend.operator(node)
    x, w, r = (torch_backend.array(each) for each in (draw(3, 2, 4), draw(1, 8, 4), draw(1, 8, 2)))
    before = torch_backend.host(operator.forward(x, w, r)[0])
    np.testing.assert_array_equal(torch_backend.host(operator.forward(x, w, r)[0]), before)
    w.mul_(2)
    after = torch_backend.host(operator.forward(x, w, r)[0])
    np.testing.assert_array_equal(after, torch_backend.host(torch_backend.operator(node).forward(x, w, r)[0]))
    assert (after != before).any()


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", [None, "bool", "float"])
@pytest.mark.parametrize("heads", [2, 4])
def test_fused_attention_and_its_steps_agree(torch_backend, causal, mask, heads):
    query, key, value = draw(2, heads, 3, 4), draw(2, 2, 5, 4), draw(2, 2, 5, 6)
    given = {None: None, "bool": draw(3, 5) > 0, "float": draw(2, 1, 3, 5)}[mask]
    if mask == "bool":
        # A query without keys gets zeros on both paths.
        given[1] = False
    names = ["q", "k", "v", "m" if mask else ""]
    fused = run(torch_backend, operator_node("Attention", names, opset=23, is_causal=causal), query, key, value, given)
    outputs = ["y", "", "", "products"]
    node = operator_node("Attention", names, outputs, opset=23, is_causal=causal)
    steps = run_first(torch_backend, node, query, key, value, given)
    np.testing.assert_allclose(fused[0], steps, rtol=1e-4, atol=1e-5)
    if mask == "bool":
        np.testing.assert_array_equal(fused[0][:, :, 1], 0)


def run_first(backend, node, *inputs):
    native = [None if each is None else backend.array(each) for each in inputs]
    return backend.host(backend.operator(node).forward(*native)[0])


@pytest.mark.parametrize("sizes", [(8, 10), (3, 2), (7, 5)])
@pytest.mark.parametrize(("mode", "coordinates"), [
    ("linear", "half_pixel"), ("linear", "align_corners"), ("linear", "pytorch_half_pixel"),
    ("cubic", "half_pixel"), ("cubic", "align_corners"),
])  # fmt: skip
def test_resizing_by_a_kernel_and_by_tables_agree(torch_backend, monkeypatch, mode, coordinates, sizes):
    from levelbench.frameworks.torch.operators import windows

    node = operator_node("Resize", ["x", "", "", "s"], mode=mode, coordinate_transformation_mode=coordinates)
    inputs = draw(1, 2, 4, 5), None, None, np.array([1, 2, *sizes])
    (kernel,) = run(torch_backend, node, *inputs, structural=(1, 2, 3))
    monkeypatch.setattr(windows, "_by_kernel", lambda *_: None)
    (table,) = run(torch_backend, node, *inputs, structural=(1, 2, 3))
    np.testing.assert_allclose(kernel, table, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("include", [0, 1])
def test_averages_by_a_kernel_and_by_sums_of_windows_agree(torch_backend, monkeypatch, ceil, include):
    from levelbench.frameworks.torch.operators import windows

    node = operator_node(
        "AveragePool", kernel_shape=[3, 2], strides=[2, 3], pads=[1, 1, 1, 1], ceil_mode=ceil, count_include_pad=include
    )
    x = draw(2, 3, 8, 9)
    (kernel,) = run(torch_backend, node, x)
    monkeypatch.setattr(windows, "_native", lambda _: False)
    (sums,) = run(torch_backend, node, x)
    np.testing.assert_allclose(kernel, sums, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("by_column", [0, 1])
def test_places_of_maxima_are_the_same_however_they_are_padded(torch_backend, monkeypatch, by_column):
    from levelbench.frameworks.torch.operators import windows

    node = operator_node(
        "MaxPool", ["x"], ["y", "i"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], storage_order=by_column
    )
    x = draw(2, 3, 6, 7)
    kernel = run(torch_backend, node, x)
    monkeypatch.setattr(windows, "_native", lambda _: False)
    general = run(torch_backend, node, x)
    for one, other in zip(kernel, general, strict=True):
        np.testing.assert_array_equal(one, other)
    if not by_column:
        np.testing.assert_array_equal(x.reshape(-1)[kernel[1]], kernel[0])


@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (0, 0, 0, 0)])
def test_a_transposed_convolution_and_its_general_form_agree(torch_backend, padding):
    inputs = draw(1, 2, 4, 3), draw(2, 3, 3, 3), draw(3)
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "output_padding": [1, 0]}
    plain = operator_node("ConvTranspose", ["x", "w", "b"], pads=list(padding), **attributes)
    (found,) = run(torch_backend, plain, *inputs)
    sizes = list(found.shape[2:])
    same = operator_node("ConvTranspose", ["x", "w", "b"], output_shape=sizes, auto_pad="SAME_UPPER", **attributes)
    (general,) = run(torch_backend, same, *inputs)
    np.testing.assert_allclose(found, general, rtol=1e-5, atol=1e-6)
