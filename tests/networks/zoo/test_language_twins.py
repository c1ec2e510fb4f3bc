"""Language networks equal independent implementations in PyTorch, in outputs and gradients."""

import math

import numpy as np
import pytest
from tests.networks.zoo.compared import assert_close, shaken
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

torch = pytest.importorskip("torch")
F = torch.nn.functional
call = torch.func.functional_call


def assert_twins(network, twin, *, sizes, batch=3):
    """``twin(parameters, inputs)`` in PyTorch gives what the network gives, and the same gradients.

    The loss is the mean cross-entropy of the first output, or the mean of squares where it has no classes.
    """
    inputs, parameters = network.make_inputs(batch, seed=1, sizes=sizes), shaken(network)
    leaves = {name: torch.tensor(array, requires_grad=True) for name, array in parameters.items()}
    theirs = twin(leaves, {name: torch.tensor(array) for name, array in inputs.items()})
    theirs = theirs if isinstance(theirs, tuple) else (theirs,)
    ours = open_framework("numpy").executor(network, parameters).infer(*inputs.values())
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine, other, 1e-5)
    kind = "cross-entropy" if network.outputs[0].name == "logits" else "mse"
    trained = network.with_loss(kind)
    labels = trained.make_inputs(batch, seed=2, sizes=sizes)[trained.inputs[-1].name]
    found, gradients = (
        open_framework("numpy").executor(trained, parameters).infer_and_backprop(*inputs.values(), labels)
    )
    if kind == "mse":
        wanted = F.mse_loss(theirs[0], torch.tensor(labels))
    else:
        wanted = F.cross_entropy(theirs[0].flatten(0, -2), torch.tensor(labels).flatten())
    assert float(found) == pytest.approx(wanted.item(), rel=1e-4)
    wanted.backward()
    # The gradient of the bias of an attention's keys is zero up to rounding, because softmax cancels it.
    floor = 1e-6 * max(float(leaf.grad.abs().max()) for leaf in leaves.values() if leaf.grad is not None)
    for name, leaf in leaves.items():
        if leaf.grad is not None:
            assert_close(gradients[name], leaf.grad, 1e-4, floor)
        else:
            assert not np.any(gradients[name])


def reordered(weight, order):
    """The gates of an ONNX weight, along its first axis, reordered."""
    gates = weight.chunk(len(order))
    return torch.cat([gates[at] for at in order])


# ONNX: input, output, forget, cell. PyTorch: input, forget, cell, output.
LSTM_ORDER = (0, 2, 3, 1)


def torch_lstm(p, prefix, x, hidden, state=None):
    """PyTorch's own LSTM, in one direction or both, with our weights; x is (length, batch, inputs)."""
    directions, _, inputs = p[f"{prefix}.weight"].shape
    module = torch.nn.LSTM(inputs, hidden, bidirectional=directions == 2)
    weights = {}
    for at, ending in list(enumerate(("_l0", "_l0_reverse")))[:directions]:
        bias = p[f"{prefix}.bias"][at]
        input_bias, other = bias.split(4 * hidden) if bias.numel() == 8 * hidden else (bias, torch.zeros_like(bias))
        weights[f"weight_ih{ending}"] = reordered(p[f"{prefix}.weight"][at], LSTM_ORDER)
        weights[f"weight_hh{ending}"] = reordered(p[f"{prefix}.recurrent"][at], LSTM_ORDER)
        weights[f"bias_ih{ending}"] = reordered(input_bias, LSTM_ORDER)
        weights[f"bias_hh{ending}"] = reordered(other, LSTM_ORDER)
    return call(module, weights, (x, state))


def linear(p, name, x):
    return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))


def layer_norm(p, name, x, epsilon):
    return F.layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"], epsilon)


def lstm_lm_twin(p, inputs):
    x = p["embedding.weight"][inputs["input_ids"].T]
    for layer in range(2):
        x, _ = torch_lstm(p, f"lstm{layer}", x, 8)
    return linear(p, "softmax", x.transpose(0, 1))


def test_the_lstm_language_model_equals_pytorchs_lstm():
    assert_twins(small_lstm_lm(), lstm_lm_twin, sizes={"length": 6})


def bert_hidden(p, inputs, width=16, heads=2):
    """Embeddings, and PyTorch's own TransformerEncoderLayer with post-normalisation and the exact GELU."""
    ids = inputs["input_ids"]
    x = p["embeddings.word.weight"][ids] + p["embeddings.position.weight"][: ids.shape[1]]
    x = layer_norm(p, "embeddings.norm", x + p["embeddings.token_type.weight"][inputs["token_type_ids"]], 1e-12)
    for layer in range(2):
        module = torch.nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True
        )
        prefix = f"encoder.layer{layer}"
        attention = {
            f"in_proj_{what}": torch.cat([p[f"{prefix}.attention.{part}.{what}"] for part in ("query", "key", "value")])
            for what in ("weight", "bias")
        }
        weights = {f"self_attn.{name}": value for name, value in attention.items()}
        for mine, its in (
            ("attention.output", "self_attn.out_proj"),
            ("attention.norm", "norm1"),
            ("intermediate", "linear1"),
            ("output", "linear2"),
            ("norm", "norm2"),
        ):
            weights |= {f"{its}.{what}": p[f"{prefix}.{mine}.{what}"] for what in ("weight", "bias")}
        x = call(module, weights, (x,), {"src_key_padding_mask": inputs["attention_mask"] == 0})
    return x


def bert_twin(p, inputs):
    x = bert_hidden(p, inputs)
    return x, torch.tanh(linear(p, "pooler", x[:, 0]))


def bert_masked_lm_twin(p, inputs):
    x = F.gelu(linear(p, "predictions.transform", bert_hidden(p, inputs)))
    x = layer_norm(p, "predictions.norm", x, 1e-12)
    return F.linear(x, p["embeddings.word.weight"], p["predictions.bias"])


def test_bert_equals_pytorchs_encoder_layer():
    assert_twins(small_bert(), bert_twin, sizes={"length": 9})


def test_berts_masked_language_model_is_tied_to_its_embedding():
    assert_twins(small_bert(head="masked-lm"), bert_masked_lm_twin, sizes={"length": 9})


def gpt2_twin(p, inputs, width=16, heads=2):
    ids = inputs["input_ids"]
    batch, length = ids.shape
    x = p["token.weight"][ids] + p["position.weight"][:length]
    for layer in range(2):
        prefix = f"block{layer}"
        y = layer_norm(p, f"{prefix}.attention.norm", x, 1e-5)
        query, key, value = (
            each.view(batch, length, heads, width // heads).transpose(1, 2)
            for each in linear(p, f"{prefix}.attention.input", y).split(width, dim=-1)
        )
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + linear(p, f"{prefix}.attention.output", y.transpose(1, 2).reshape(batch, length, width))
        y = linear(p, f"{prefix}.mlp.input", layer_norm(p, f"{prefix}.mlp.norm", x, 1e-5))
        x = x + linear(p, f"{prefix}.mlp.output", F.gelu(y, approximate="tanh"))
    return layer_norm(p, "norm", x, 1e-5) @ p["token.weight"].T


def test_gpt2_equals_a_twin_with_pytorchs_causal_attention():
    assert_twins(small_gpt2(), gpt2_twin, sizes={"length": 9})


def swiglu(p, prefix, y):
    y = F.silu(linear(p, f"{prefix}.gate", y)) * linear(p, f"{prefix}.up", y)
    return linear(p, f"{prefix}.output", y)


def mixture_twin(chosen):
    """Expert by expert, each computes only the tokens that have it, whose weights are a softmax over their experts."""

    def mixed(p, prefix, y):
        rows = y.flatten(0, 1)
        scores = linear(p, f"{prefix}.router", rows)
        best, places = scores.topk(chosen, dim=-1)
        weights = best.softmax(-1) if chosen > 1 else scores.softmax(-1).gather(1, places)
        made = torch.zeros_like(rows)
        for expert in range(scores.shape[1]):
            gate, up, output = (p[f"{prefix}.{each}.weight"][expert] for each in ("gate", "up", "output"))
            at, rank = torch.where(places == expert)
            found = (F.silu(rows[at] @ gate) * (rows[at] @ up)) @ output
            made = made.index_add(0, at, found * weights[at, rank, None])
        return made.view_as(y)

    return mixed


def llama_twin(p, inputs, width=16, heads=4, groups=2, base=10000.0, feed_forward=swiglu):
    """PyTorch's own RMSNorm and grouped attention; positions turn complex numbers, one for each pair of halves."""
    ids = inputs["input_ids"]
    batch, length = ids.shape
    each = width // heads
    rates = torch.tensor([base ** (-2 * k / each) for k in range(each // 2)])
    turns = torch.polar(torch.ones(length, each // 2), torch.outer(torch.arange(length), rates))

    def by_head(name, y, count):
        return linear(p, name, y).view(batch, length, count, each).transpose(1, 2)

    def turned(y):
        z = torch.complex(*y.split(each // 2, dim=-1)) * turns
        return torch.cat([z.real, z.imag], dim=-1)

    def norm(name, y):
        return F.rms_norm(y, (width,), p[f"{name}.scale"], 1e-5)

    x = p["token.weight"][ids]
    for layer in range(2):
        prefix = f"block{layer}"
        y = norm(f"{prefix}.attention.norm", x)
        query = turned(by_head(f"{prefix}.attention.query", y, heads))
        key = turned(by_head(f"{prefix}.attention.key", y, groups))
        value = by_head(f"{prefix}.attention.value", y, groups)
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + linear(p, f"{prefix}.attention.output", y.transpose(1, 2).reshape(batch, length, width))
        x = x + feed_forward(p, f"{prefix}.mlp", norm(f"{prefix}.mlp.norm", x))
    return norm("norm", x) @ p["head.weight" if "head.weight" in p else "token.weight"].T


def test_llama_equals_a_twin_with_pytorchs_norm_and_grouped_attention():
    assert_twins(small_llama(), llama_twin, sizes={"length": 9})


@pytest.mark.parametrize("chosen", [1, 2, 3])
def test_a_mixture_equals_a_twin_whose_experts_compute_only_their_own_tokens(chosen):
    def twin(p, inputs):
        return llama_twin(p, inputs, base=100.0, feed_forward=mixture_twin(chosen))

    assert_twins(small_moe(chosen=chosen, base=100.0), twin, sizes={"length": 9})


def transformer_twin(p, inputs, width=16, heads=2):
    """PyTorch's own encoder and decoder layers; positions are computed element by element with the paper's formula."""
    places = torch.tensor(
        [
            [(math.cos if k % 2 else math.sin)(at / 10000 ** ((k - k % 2) / width)) for k in range(width)]
            for at in range(12)
        ]
    )
    table, padded = p["embedding.weight"], inputs["source_mask"] == 0

    def embed(ids):
        return table[ids] * math.sqrt(width) + places[: ids.shape[1]]

    def attention(prefix, its):
        stacked = torch.cat([p[f"{prefix}.{part}.weight"] for part in ("query", "key", "value")])
        return {
            f"{its}.in_proj_weight": stacked,
            f"{its}.in_proj_bias": torch.zeros(3 * width),
            f"{its}.out_proj.weight": p[f"{prefix}.output.weight"],
            f"{its}.out_proj.bias": torch.zeros(width),
        }

    def copied(names):
        return {f"{its}.{what}": p[f"{mine}.{what}"] for mine, its in names for what in ("weight", "bias")}

    how = {"dropout": 0.0, "layer_norm_eps": 1e-6, "batch_first": True}
    x, y = embed(inputs["source_ids"]), embed(inputs["target_ids"])
    for layer in range(2):
        prefix = f"encoder{layer}"
        feed = [(f"{prefix}.feed_forward.input", "linear1"), (f"{prefix}.feed_forward.output", "linear2")]
        norms = [(f"{prefix}.attention.norm", "norm1"), (f"{prefix}.feed_forward.norm", "norm2")]
        module = torch.nn.TransformerEncoderLayer(width, heads, 24, **how)
        weights = attention(f"{prefix}.attention", "self_attn") | copied(feed + norms)
        x = call(module, weights, (x,), {"src_key_padding_mask": padded})
    later = torch.ones(y.shape[1], y.shape[1], dtype=torch.bool).triu(1)
    for layer in range(2):
        prefix = f"decoder{layer}"
        feed = [(f"{prefix}.feed_forward.input", "linear1"), (f"{prefix}.feed_forward.output", "linear2")]
        norms = [
            (f"{prefix}.{part}.norm", f"norm{at}") for at, part in enumerate(("attention", "cross", "feed_forward"), 1)
        ]
        module = torch.nn.TransformerDecoderLayer(width, heads, 24, **how)
        weights = attention(f"{prefix}.attention", "self_attn") | attention(f"{prefix}.cross", "multihead_attn")
        weights |= copied(feed + norms)
        y = call(module, weights, (y, x), {"tgt_mask": later, "memory_key_padding_mask": padded})
    return y @ table.T


def test_the_transformer_equals_pytorchs_encoder_and_decoder_layers():
    assert_twins(small_transformer(), transformer_twin, sizes={"source": 9, "target": 7})


def seq2seq_twin(p, inputs, width=8, layers=2):
    states, made = [None] * layers, {}
    for side, ids in (("encoder", inputs["source_ids"]), ("decoder", inputs["target_ids"])):
        x = p[f"{side}.embedding.weight"][ids.T]
        for layer in range(layers):
            x, states[layer] = torch_lstm(p, f"{side}.lstm{layer}", x, width, states[layer])
        made[side] = x.transpose(0, 1)
    shares = torch.einsum("btw,bsw->bts", made["decoder"], made["encoder"]).softmax(-1)
    context = torch.einsum("bts,bsw->btw", shares, made["encoder"])
    x = torch.tanh(linear(p, "attention.combine", torch.cat([context, made["decoder"]], -1)))
    return linear(p, "softmax", x)


def test_seq2seq_equals_a_twin_with_pytorchs_lstm():
    network = zoo.build("seq2seq", layers=2, width=8, source_vocabulary=17, target_vocabulary=19)
    assert_twins(network, seq2seq_twin, sizes={"source": 6, "target": 5})


def gnmt_twin(p, inputs, width=8):
    memory = torch_lstm(p, "encoder.lstm0", p["embedding.weight"][inputs["source_ids"].T], width)[0]
    memory = torch_lstm(p, "encoder.lstm1", memory, width)[0]
    for layer in (2, 3):
        memory = memory + torch_lstm(p, f"encoder.lstm{layer}", memory, width)[0]
    x = torch_lstm(p, "decoder.lstm0", p["embedding.weight"][inputs["target_ids"].T], width)[0]
    a = "decoder.attention"
    vector = p[f"{a}.vector"] / p[f"{a}.vector"].norm() * p[f"{a}.scale"]
    sums = linear(p, f"{a}.query", x)[:, None] + linear(p, f"{a}.key", memory)[None] + p[f"{a}.bias"]
    shares = torch.einsum("tsbw,w->tsb", torch.tanh(sums), vector).softmax(1)
    context = torch.einsum("tsb,sbw->tbw", shares, memory)
    for layer in (1, 2, 3):
        y = torch_lstm(p, f"decoder.lstm{layer}", torch.cat([x, context], -1), width)[0]
        x = y if layer == 1 else x + y
    return linear(p, "classifier", x.transpose(0, 1))


def test_gnmt_equals_a_twin_with_pytorchs_lstm():
    assert_twins(zoo.build("gnmt", width=8, vocabulary=17), gnmt_twin, sizes={"source": 6, "target": 5})
