"""Each rule compared with torch.optim's after every step."""

import numpy as np
import pytest

from levelbench.training import optimizers as ours

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

PAIRS = {
    "SGD": (ours.SGD(0.05), "SGD", {"lr": 0.05}),
    "SGD with decay": (ours.SGD(0.05, weight_decay=0.1), "SGD", {"lr": 0.05, "weight_decay": 0.1}),
    "momentum": (ours.Momentum(0.05, 0.9), "SGD", {"lr": 0.05, "momentum": 0.9}),
    "momentum with decay": (
        ours.Momentum(0.05, 0.8, weight_decay=0.1),
        "SGD",
        {"lr": 0.05, "momentum": 0.8, "weight_decay": 0.1},
    ),
    "Nesterov": (ours.Momentum(0.05, 0.9, nesterov=True), "SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "Nesterov with decay": (
        ours.Momentum(0.05, 0.9, nesterov=True, weight_decay=0.1),
        "SGD",
        {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    ),
    "AdaGrad": (ours.AdaGrad(0.1), "Adagrad", {"lr": 0.1}),
    "AdaGrad, all settings": (
        ours.AdaGrad(0.1, epsilon=1e-2, initial=0.3, lr_decay=0.01, weight_decay=0.1),
        "Adagrad",
        {"lr": 0.1, "eps": 1e-2, "initial_accumulator_value": 0.3, "lr_decay": 0.01, "weight_decay": 0.1},
    ),
    "RMSProp": (ours.RMSProp(0.01), "RMSprop", {"lr": 0.01}),
    "RMSProp, centred": (
        ours.RMSProp(0.01, alpha=0.9, epsilon=1e-2, centered=True),
        "RMSprop",
        {"lr": 0.01, "alpha": 0.9, "eps": 1e-2, "centered": True},
    ),
    "RMSProp, all settings": (
        ours.RMSProp(0.01, alpha=0.9, epsilon=1e-2, momentum=0.7, centered=True, weight_decay=0.1),
        "RMSprop",
        {"lr": 0.01, "alpha": 0.9, "eps": 1e-2, "momentum": 0.7, "centered": True, "weight_decay": 0.1},
    ),
    "Adadelta": (ours.Adadelta(1.0), "Adadelta", {"lr": 1.0}),
    "Adadelta, all settings": (
        ours.Adadelta(0.5, rho=0.8, epsilon=1e-3, weight_decay=0.1),
        "Adadelta",
        {"lr": 0.5, "rho": 0.8, "eps": 1e-3, "weight_decay": 0.1},
    ),
    "Adam": (ours.Adam(0.01), "Adam", {"lr": 0.01}),
    "Adam, all settings": (
        ours.Adam(0.01, 0.8, 0.95, 1e-2, weight_decay=0.1, amsgrad=True),
        "Adam",
        {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-2, "weight_decay": 0.1, "amsgrad": True},
    ),
    "AdamW": (ours.AdamW(0.01), "AdamW", {"lr": 0.01}),
    "AdamW, all settings": (
        ours.AdamW(0.01, 0.8, 0.95, 1e-2, weight_decay=0.2, amsgrad=True),
        "AdamW",
        {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-2, "weight_decay": 0.2, "amsgrad": True},
    ),
    "NAdam": (ours.NAdam(0.01), "NAdam", {"lr": 0.01}),
    "NAdam, all settings": (
        ours.NAdam(0.01, 0.8, 0.95, 1e-2, weight_decay=0.1, momentum_decay=0.1),
        "NAdam",
        {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-2, "weight_decay": 0.1, "momentum_decay": 0.1},
    ),
    "Adafactor": (ours.Adafactor(0.01), "Adafactor", {"lr": 0.01}),
    "Adafactor, all settings": (
        ours.Adafactor(0.3, beta2_decay=-0.6, epsilon=1e-2, scale=0.5, clip=1.5, weight_decay=0.1),
        "Adafactor",
        {"lr": 0.3, "beta2_decay": -0.6, "eps": (1e-2, 0.5), "d": 1.5, "weight_decay": 0.1},
    ),
}


def torch_path(problem, name, settings):
    parameters = {n: torch.nn.Parameter(torch.from_numpy(w.copy())) for n, w in problem.start.items()}
    curvature = {n: torch.from_numpy(each) for n, each in problem.curvature.items()}
    noise = {n: torch.from_numpy(each) for n, each in problem.noise.items()}
    optimizer = getattr(torch.optim, name)(list(parameters.values()), **settings)
    path = []
    for step in range(problem.steps):
        for n, parameter in parameters.items():
            parameter.grad = curvature[n] * parameter.detach() + noise[n][step]
        optimizer.step()
        path.append(problem.flat({n: each.detach().numpy() for n, each in parameters.items()}))
    return np.array(path)


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if "with decay" not in pair and "," not in pair])
def test_a_rule_equals_torch_at_each_of_1000_steps_in_float32(problem, assert_same_path, pair):
    rule, name, settings = PAIRS[pair]
    given = problem(1000, "float32", ("weight",))
    assert_same_path(given.run(rule), torch_path(given, name, settings), 1e-5)


@pytest.mark.parametrize("pair", PAIRS)
def test_every_setting_means_what_it_does_in_torch_to_the_last_digits_of_float64(problem, assert_same_path, pair):
    rule, name, settings = PAIRS[pair]
    given = problem(60)
    # PyTorch keeps the product of NAdam's momenta in float32 whatever the parameters are.
    tolerance = 1e-7 if name == "NAdam" else 1e-12
    assert_same_path(given.run(rule), torch_path(given, name, settings), tolerance)


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize(("scale", "theirs"), [("original", "original"), ("rms", "match_rms_adamw")])
def test_muon_equals_torch_except_for_its_bfloat16(problem, assert_same_path, monkeypatch, nesterov, scale, theirs):
    """PyTorch's iteration always uses bfloat16; here it uses the matrix's dtype."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor.clone())
    given = problem(60, "float64", ("weight",))
    native = torch_path(given, "Muon", {"lr": 0.02, "weight_decay": 0.1, "nesterov": nesterov, "adjust_lr_fn": theirs})
    rule = ours.Muon(0.02, nesterov=nesterov, weight_decay=0.1, scale=scale)
    assert_same_path(given.run(rule), native, 1e-11)


def test_muon_in_bfloat16_does_what_torch_does(problem):
    """The same products, rounded in another order: they agree to bfloat16's precision after a step."""
    given = problem(1, "float32", ("weight",))
    native = torch_path(given, "Muon", {"lr": 1.0, "weight_decay": 0.0})
    weight, rule = torch.from_numpy(given.start["weight"].copy()), ours.Muon(1.0, bfloat16=True)
    gradient = torch.from_numpy(given.gradients(given.start, 1)["weight"])
    moved, _ = rule.update(weight, gradient, rule.init(weight), 1, 1.0)
    assert moved.dtype == torch.float32
    np.testing.assert_allclose(moved.numpy().reshape(-1), native[0], atol=0.05)
