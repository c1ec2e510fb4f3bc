"""Differences from a reference, planted before the comparison was written: each is found and named."""

import re

import pytest

torch = pytest.importorskip("torch")

from tests.networks.probes.likely_resnets import Cifar, ResNet, batch_norm, he  # noqa: E402
from torch import nn  # noqa: E402

from levelbench.networks import zoo  # noqa: E402
from levelbench.networks.probes.likeness import compare_with  # noqa: E402
from levelbench.operators.frameworks import open_framework  # noqa: E402

pytestmark = pytest.mark.sampled(3)


def frozen(net):
    net.stem.weight.requires_grad_(False)


def in_eval(net):
    for each in net.modules():
        if isinstance(each, nn.BatchNorm2d):
            each.train = lambda mode=True, each=each: each
            each.eval()
            each.training = False


def tied(net):
    net.blocks[1].convs[1].weight = net.blocks[1].convs[0].weight


def xavier(net):
    for each in net.modules():
        if isinstance(each, nn.Conv2d):
            nn.init.xavier_normal_(each.weight)


def constant_scale(net):
    for each in net.modules():
        if isinstance(each, nn.BatchNorm2d):
            nn.init.constant_(each.weight, 0.5)


def small_head(head):
    nn.init.normal_(head.weight, 0, 0.01)
    nn.init.zeros_(head.bias)


def cumulative(net):
    for each in net.modules():
        if isinstance(each, nn.BatchNorm2d):
            each.momentum = None


def survive(module, inputs, output):
    return output * output.new_empty(output.shape[0], 1, 1, 1).bernoulli_(0.9).div_(0.9) if module.training else output


def autocast(net):
    plain = net.forward

    def forward(x):
        with torch.autocast("cpu", torch.bfloat16):
            return plain(x)

    net.forward = forward


def after(change):
    """The reference with a change to the module."""

    def build(**changes):
        net = ResNet(**changes)
        change(net)
        return net

    return build


DEEP = {"depth": 50}
PLANTED = {
    "version-1": ({**DEEP, "version": "1"}, "stride", r"at the 1x1 .* instead of the 3x3.*v1"),
    "stride-last": ({**DEEP, "version": "last"}, "stride", r"at the last 1x1 .* instead of the 3x3"),
    "stride-second": ({"version": "last"}, "stride", r"at the second 3x3 .* instead of the first"),
    "pre-activation": ({"pre": True}, "pre-activation", r"normalisation and activation come before"),
    "pre-activation-50": ({**DEEP, "pre": True}, "pre-activation", r"normalisation and activation come before"),
    "leaky": ({"act": nn.LeakyReLU}, "activation", r"leaky ReLU \(slope 0.01\) instead of ReLU"),
    "relu6": ({"act": nn.ReLU6}, "activation", r"ReLU6 instead of ReLU"),
    "silu": ({"act": nn.SiLU}, "activation", r"SiLU instead of ReLU"),
    "gelu": ({"act": nn.GELU}, "activation", r"GELU instead of ReLU"),
    "elu": ({"act": nn.ELU}, "activation", r"ELU.* instead of ReLU"),
    "bias": ({"bias": True}, "bias", r"a bias that the reference lacks"),
    "stem-bias": ({"stem_bias": True}, "bias", r"a bias that the reference lacks"),
    "no-head-bias": ({"head_bias": False}, "bias", r"no bias, unlike the reference"),
    "momentum": ({"norm": batch_norm(momentum=0.01)}, "normalisation", r"momentum 0.01 instead of 0.1"),
    "epsilon": ({"norm": batch_norm(eps=1e-3)}, "normalisation", r"epsilon 0.001 instead of 1e-05"),
    "no-affine": ({"norm": batch_norm(affine=False)}, "normalisation", r"no scale and shift"),
    "no-statistics": ({"norm": batch_norm(track_running_stats=False)}, "normalisation", r"no running statistics"),
    "group-norm": (
        {"norm": lambda c: nn.GroupNorm(4, c)},
        "normalisation",
        r"group normalisation \(4 groups\) instead",
    ),
    "instance": (
        {"norm": lambda c: nn.InstanceNorm2d(c, affine=True)},
        "normalisation",
        r"instance normalisation instead of batch",
    ),
    "no-norm": ({"skip_norm": True}, "normalisation", r"no batch normalisation"),
    "order": ({"act_before_norm": True}, "order", r"ReLU comes before batch normalisation"),
    "before-add": ({"act_before_add": True}, "activation", r"no ReLU after the addition"),
    "no-last": ({"no_last_act": True}, "activation", r"no ReLU after the addition"),
    "torch-init": ({"init": None}, "initialisation", r"PyTorch's default.* instead of .*He"),
    "fan-in": ({"init": lambda net: he(net, "fan_in")}, "initialisation", r"He.* fan-in.* instead of .*fan-out"),
    "xavier": ({"init": xavier}, "initialisation", r"Xavier.* instead of .*He"),
    "zero-last": ({"zero_last": True}, "initialisation", r"last normalisation of each residual path starts at 0"),
    "scale": ({"init": lambda net: (he(net), constant_scale(net))}, "initialisation", r"constant 0.5 instead of .* 1"),
    "head-init": ({"head_init": small_head}, "initialisation", r"normal .* 0.01.* instead of"),
    "groups": ({**DEEP, "groups": 2}, "groups", r"2 groups instead of 1"),
    "wide": ({**DEEP, "widening": 2}, "width", r"channels instead of"),
    "narrow": ({"width": 6}, "width", r"channels instead of"),
    "dropout": ({"dropout": 0.1}, "dropout", r"a dropout of 0.1 that the reference lacks"),
    "head-dropout": ({"head_dropout": 0.5}, "dropout", r"a dropout of 0.5 that the reference lacks"),
    "average-pool": ({"pool": lambda: nn.AvgPool2d(3, 2, 1)}, "pooling", r"average pooling instead of max pooling"),
    "no-pool": ({"pool": nn.Identity}, "pooling", r"no max pooling"),
    "pool-kernel": ({"pool": lambda: nn.MaxPool2d(2, 2)}, "pooling", r"2x2 instead of 3x3"),
    "ceil": ({"pool": lambda: nn.MaxPool2d(3, 2, 0, ceil_mode=True)}, "pooling", r"padding 0 instead of 1"),
    "max-head": ({"head_pool": lambda: nn.AdaptiveMaxPool2d(1)}, "pooling", r"global max pooling instead of"),
    "cifar-stem": ({"stem": (3, 1, 1)}, "kernel", r"3x3 instead of 7x7"),
    "stem-stride": ({"stem": (7, 1, 3)}, "stride", r"1 instead of 2"),
    "stem-padding": ({"stem": (7, 2, 2)}, "padding", r"2 instead of 3"),
    "reflect": ({"padding_mode": "reflect"}, "padding", r"reflect"),
    "classes": ({"classes": 100}, "classes", r"100 instead of 10"),
    "shortcut-a": ({"shortcut": "A"}, "shortcut", r"type A.* instead of .*type B"),
    "shortcut-c": ({"shortcut": "C"}, "shortcut", r"type C"),
    "shortcut-d": ({"shortcut": "D"}, "shortcut", r"average pooling.* instead of .*type B"),
    "shortcut-bare": ({"shortcut": "bare"}, "shortcut", r"without normalisation"),
    "no-shortcut": ({"no_shortcut": True}, "shortcut", r"no shortcut"),
    "more-blocks": ({"blocks": (2, 3, 2, 2)}, "layers", r"1 additional residual block"),
    "fewer-blocks": ({"blocks": (2, 2, 2, 1)}, "layers", r"1 residual block.* missing"),
    "squeeze": ({"se": True}, "layers", r"squeeze-and-excitation"),
    "softmax": ({"softmax": True}, "layers", r"log-softmax"),
    "scaled": ({"scale": 0.5}, "layers", r"multiplied by 0.5"),
    "scaled-input": ({"scaled_input": True}, "layers", r"multiplied by|shifted by"),
    "subtract": ({"subtract": True}, "layers", r"subtraction instead of addition"),
    "detach": ({"detach": True}, "gradients", r"no gradient"),
}
CHANGED = {
    "cumulative": (cumulative, "normalisation", r"cumulative average instead of 0.1"),
    "zero-bias": (
        lambda net: nn.init.zeros_(net.head.bias),
        "initialisation",
        r"biases .*constant 0 instead of PyTorch",
    ),
    "unread": (lambda net: setattr(net, "aux", nn.Linear(3, 3)), "parameters", r"nothing reads aux.weight, aux.bias"),
    "weight-norm": (
        lambda net: setattr(net, "stem", nn.utils.parametrizations.weight_norm(net.stem)),
        "weights",
        r"computed in each call",
    ),
    "hook": (
        lambda net: net.blocks[2].register_forward_hook(lambda module, inputs, output: output * 1.1),
        "layers",
        r"multiplied by 1.1",
    ),
    "one-momentum": (lambda net: setattr(net.blocks[3].norms[0], "momentum", 0.01), "normalisation", r"0.01.*blocks.3"),
    "stochastic-depth": (
        lambda net: net.blocks[2].norms[1].register_forward_hook(survive),
        "layers",
        r"random factor \(stochastic depth\)",
    ),
    "autocast": (autocast, "same function", r"outputs deviate"),
    "frozen": (frozen, "gradients", r"not trained"),
    "eval-norm": (in_eval, "normalisation", r"running statistics in training"),
    "tied": (tied, "weights", r"shares the weights of"),
}


def findings(build, reference="resnet18", **options):
    network = zoo.build(reference, **options)
    return compare_with(network, "model", build, open_framework("torch"), draws=1)


def check(report, probe, pattern):
    found = report.of(probe)
    assert any(each.status == "failed" and re.search(pattern, each.found) for each in found), report.failed


def reference(changes):
    return f"resnet{changes.get('depth', 18)}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if DEEP.items() <= PLANTED[name][0].items() else ())
        for name in PLANTED
    ],
)
def test_a_planted_difference_is_found_and_named_in_few_findings(name):
    changes, probe, pattern = PLANTED[name]
    report = findings(lambda: ResNet(**changes), reference(changes), size=64, classes=10, width=8).report
    check(report, probe, pattern)
    assert len(report.failed) <= 2, [(each.probe, each.found) for each in report.failed]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGED)
def test_a_planted_change_of_a_module_is_found_and_named(name):
    change, probe, pattern = CHANGED[name]
    check(findings(after(change), size=64, classes=10, width=8).report, probe, pattern)


@pytest.mark.slow
def test_projections_in_the_net_for_cifar_are_named():
    check(findings(lambda: Cifar(option="B"), "resnet20").report, "shortcut", r"type B.* instead of .*type A")


@pytest.mark.slow
def test_a_deeper_net_for_cifar_is_named():
    check(findings(lambda: Cifar(32), "resnet20").report, "layers", r"6 additional residual blocks")
