import numpy as np
import pytest
from tests.frameworks.numpy.arrays import normal

torch = pytest.importorskip("torch")

STEPS, BATCH, INPUT, HIDDEN = 5, 3, 4, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
# PyTorch's gate order, as positions in ONNX's.
ORDER = {"RNN": [0], "GRU": [1, 0, 2], "LSTM": [0, 2, 3, 1]}


def problem(name, directions=1, with_bias=True, with_states=True):
    """X, W, R, B, sequence_lens, initial_h and, for an LSTM, initial_c."""
    rows = GATES[name] * HIDDEN
    arrays = [
        normal(STEPS, BATCH, INPUT),
        normal(directions, rows, INPUT, seed=1),
        normal(directions, rows, HIDDEN, seed=2),
        normal(directions, 2 * rows, seed=3) if with_bias else None,
        None,
        normal(directions, BATCH, HIDDEN, seed=4) if with_states else None,
    ]
    return [*arrays, normal(directions, BATCH, HIDDEN, seed=5) if with_states else None] if name == "LSTM" else arrays


def reordered(name, weight):
    parts = weight.chunk(GATES[name])
    return torch.cat([parts[at] for at in ORDER[name]])


def of_torch(name, directions, lengths=None):
    """torch.nn's module as a function of ONNX's parameters."""

    def reference(x, w, r, b=None, _=None, h=None, c=None):
        parameters = []
        for at in range(directions):
            parameters += [reordered(name, w[at]), reordered(name, r[at])]
            parameters += [] if b is None else [reordered(name, part) for part in b[at].chunk(2)]
        zero = torch.zeros(directions, BATCH, HIDDEN, dtype=x.dtype)
        states = [zero if each is None else each for each in (h, c)]
        run = {"RNN": torch._VF.rnn_tanh, "GRU": torch._VF.gru, "LSTM": torch._VF.lstm}[name]
        start = tuple(states) if name == "LSTM" else states[0]
        options = (b is not None, 1, 0.0, False, directions == 2)
        if lengths is None:
            y, *last = run(x, start, parameters, *options, False)
        else:
            packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths))
            y, *last = run(packed.data, packed.batch_sizes, start, parameters, *options)
            packed = torch.nn.utils.rnn.PackedSequence(y, packed.batch_sizes)
            y, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, total_length=len(x))
        return y.reshape(STEPS, BATCH, directions, HIDDEN).transpose(1, 2), *last

    return reference


def outputs(name):
    return ("y", "h", "c")[: 3 if name == "LSTM" else 2]


def options(name, directions=1):
    direction = "bidirectional" if directions == 2 else "forward"
    # PyTorch's GRU multiplies by the recurrent weights before the reset.
    extra = {"linear_before_reset": 1} if name == "GRU" else {}
    return {"outputs": outputs(name), "hidden_size": HIDDEN, "direction": direction, **extra}


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("full", [True, False])
def test_a_layer_and_its_gradients_match_torch(name, directions, full, same_as_torch):
    arrays = problem(name, directions, with_bias=full, with_states=full)
    same_as_torch(of_torch(name, directions), name, *arrays, **options(name, directions))


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("directions", [1, 2])
def test_sequences_of_other_lengths_are_packed_ones(name, directions, same_as_torch):
    arrays = problem(name, directions)
    arrays[4] = np.array([5, 3, 1], np.int32)
    same_as_torch(of_torch(name, directions, [5, 3, 1]), name, *arrays, **options(name, directions))


@pytest.mark.parametrize("name", GATES)
def test_a_reversed_layer_is_a_layer_of_the_reversed_sequence(name, same_as_torch):
    forward = of_torch(name, 1)

    def reference(x, *others):
        y, *last = forward(x.flip(0), *others)
        return y.flip(0), *last

    same_as_torch(reference, name, *problem(name), **{**options(name), "direction": "reverse"})


@pytest.mark.parametrize("name", GATES)
def test_layout_1_puts_the_batch_first(name, same_as_torch):
    def reference(x, w, r, b, lengths, *states):
        states = [each.transpose(0, 1) for each in states]
        y, *last = of_torch(name, 2)(x.transpose(0, 1), w, r, b, lengths, *states)
        return y.permute(2, 0, 1, 3), *[each.transpose(0, 1) for each in last]

    arrays = problem(name, 2)
    for at in (0, 5, 6):
        if at < len(arrays):
            arrays[at] = np.ascontiguousarray(arrays[at].swapaxes(0, 1))
    same_as_torch(reference, name, *arrays, **options(name, 2), layout=1)


def test_a_gru_that_is_not_linear_resets_the_state_first(same_as_torch):
    def reference(x, w, r, b, _, h):
        h, ys, (wb, rb) = h[0], [], b[0].chunk(2)
        (wz, wr, wn), (rz, rr, rn), bias = w[0].chunk(3), r[0].chunk(3), (wb + rb).chunk(3)
        for step in x:
            z = torch.sigmoid(step @ wz.T + h @ rz.T + bias[0])
            reset = torch.sigmoid(step @ wr.T + h @ rr.T + bias[1])
            h = (1 - z) * torch.tanh(step @ wn.T + (reset * h) @ rn.T + bias[2]) + z * h
            ys.append(h)
        return torch.stack(ys)[:, None], h[None]

    same_as_torch(reference, "GRU", *problem("GRU"), outputs=("y", "h"), hidden_size=HIDDEN)


@pytest.mark.parametrize("clip", [None, 1.2])
@pytest.mark.parametrize("coupled", [0, 1])
def test_peepholes_clip_and_coupled_gates_follow_onnx_equations(clip, coupled, same_as_torch):
    def bounded(value):
        return value if clip is None else value.clamp(-clip, clip)

    def reference(x, w, r, b, _, h, c, p):
        h, c, (pi, po, pf), ys = h[0], c[0], p[0].chunk(3), []
        for step in x:
            i, o, f, new = (step @ w[0].T + h @ r[0].T + sum(b[0].chunk(2))).chunk(4, 1)
            i = torch.sigmoid(bounded(i + pi * c))
            f = 1 - i if coupled else torch.sigmoid(bounded(f + pf * c))
            c = f * c + i * torch.tanh(bounded(new))
            h = torch.sigmoid(bounded(o + po * c)) * torch.tanh(c)
            ys.append(h)
        return torch.stack(ys)[:, None], h[None], c[None]

    arrays = [*problem("LSTM"), normal(1, 3 * HIDDEN, seed=6)]
    extra = {} if clip is None else {"clip": clip}
    same_as_torch(
        reference, "LSTM", *arrays, outputs=("y", "h", "c"), hidden_size=HIDDEN, input_forget=coupled, **extra
    )


functional = torch.nn.functional
ACTIVATIONS = {
    "Affine": ((0.7, 0.1), lambda x: 0.7 * x + 0.1),
    "Elu": ((0.7, None), lambda x: functional.elu(x, 0.7)),
    "HardSigmoid": ((0.3, 0.4), lambda x: (0.3 * x + 0.4).clamp(0, 1)),
    "LeakyRelu": ((0.2, None), lambda x: functional.leaky_relu(x, 0.2)),
    "Relu": ((None, None), torch.relu),
    "ScaledTanh": ((0.7, 1.3), lambda x: 0.7 * torch.tanh(1.3 * x)),
    "Sigmoid": ((None, None), torch.sigmoid),
    "Softplus": ((None, None), functional.softplus),
    "Softsign": ((None, None), functional.softsign),
    "ThresholdedRelu": ((0.4, None), lambda x: functional.threshold(x, 0.4, 0.0)),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_that_onnx_names_has_its_gradient(activation, same_as_torch):
    (alpha, beta), function = ACTIVATIONS[activation]

    def reference(x, w, r, b, _, h):
        h, ys = h[0], []
        for step in x:
            h = function(step @ w[0].T + h @ r[0].T + sum(b[0].chunk(2)))
            ys.append(h)
        return torch.stack(ys)[:, None], h[None]

    extra = {} if alpha is None else {"activation_alpha": [alpha]}
    extra |= {} if beta is None else {"activation_beta": [beta]}
    arrays = [each if each is None else 0.3 * each for each in problem("RNN")]
    same_as_torch(reference, "RNN", *arrays, outputs=("y", "h"), hidden_size=HIDDEN, activations=[activation], **extra)


def test_alphas_go_in_order_to_the_activations_that_take_one(run):
    arrays = problem("RNN", 2)
    given = {"hidden_size": HIDDEN, "direction": "bidirectional", "activations": ["Tanh", "LeakyRelu"]}
    found = run("RNN", *arrays, **given, activation_alpha=[0.5])
    one = [each if each is None or at == 0 else each[1:] for at, each in enumerate(arrays)]
    backward = run(
        "RNN", *one, hidden_size=HIDDEN, direction="reverse", activations=["LeakyRelu"], activation_alpha=[0.5]
    )
    np.testing.assert_array_equal(found[:, 1:], backward)


def test_a_narrow_layer_is_computed_in_float32_and_rounded_once(run):
    arrays = [each if each is None else each.astype(np.float16) for each in problem("LSTM")]
    wide = [each if each is None else each.astype(np.float32) for each in arrays]
    np.testing.assert_array_equal(
        run("LSTM", *arrays, hidden_size=HIDDEN), run("LSTM", *wide, hidden_size=HIDDEN).astype(np.float16)
    )
