"""Models that are the reference, however they are written: none is accused."""

import io
import warnings
from functools import partial

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch")

from tests.networks.probes.likely_resnets import Cifar, Functional, ResNet  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils.fusion import fuse_conv_bn_eval  # noqa: E402

from levelbench.networks import zoo  # noqa: E402
from levelbench.networks.network import Network  # noqa: E402
from levelbench.networks.probes.likeness import compare_with  # noqa: E402
from levelbench.operators.frameworks import open_framework  # noqa: E402

pytestmark = pytest.mark.sampled(3)

SMALL = {"size": 64, "classes": 10, "width": 8}


def report(build, reference="resnet18", draws=1, **options):
    network = zoo.build(reference, **options)
    return compare_with(network, "model", build, open_framework("torch"), draws=draws).report


def assert_same(found):
    assert not found.failed, [(each.probe, each.found) for each in found.failed]
    assert found.judged
    (same,) = found.of("same function")
    assert same.status == "passed", same


class ByModules(nn.Module):
    """Wraps a network, calls it in channels-last and returns a dictionary."""

    def __init__(self):
        super().__init__()
        self.net = ResNet().to(memory_format=torch.channels_last)

    def forward(self, images):
        return {"logits": self.net(images.contiguous(memory_format=torch.channels_last))}


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = ResNet()

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.net, x, use_reentrant=False)


class Residual(nn.Module):
    def __init__(self, body, shortcut):
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x):
        return self.shortcut(x) + self.body(x)


def sequential():
    """All in nn.Sequential, with the head as a 1x1 convolution and padding as layers."""

    def unit(inputs, outputs, kernel, stride):
        conv = nn.Conv2d(inputs, outputs, kernel, stride, bias=False)
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        pad = [nn.ZeroPad2d(kernel // 2)] if kernel > 1 else []
        return [*pad, conv, nn.BatchNorm2d(outputs)]

    layers, inputs = [*unit(3, 8, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 8
    for stage in range(4):
        for at in range(2):
            made, stride = 8 * 2**stage, 2 if stage and not at else 1
            body = nn.Sequential(*unit(inputs, made, 3, stride), nn.ReLU(), *unit(made, made, 3, 1))
            short = nn.Identity() if inputs == made else nn.Sequential(*unit(inputs, made, 1, stride))
            layers += [Residual(body, short), nn.ReLU()]
            inputs = made
    head = nn.Conv2d(inputs, 10, 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), head, nn.Flatten())


def fused():
    net = ResNet().eval()
    net.stem, net.norm = fuse_conv_bn_eval(net.stem, net.norm), nn.Identity()
    for block in net.blocks:
        for at, norm in enumerate(block.norms):
            block.convs[at] = fuse_conv_bn_eval(block.convs[at], norm)
            block.norms[at] = nn.Identity()
        if block.shortcut is not None:
            block.shortcut = fuse_conv_bn_eval(*block.shortcut)
    return net


def parallel():
    return nn.DataParallel(ResNet())


def compiled():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.compile(ResNet())


WRITTEN = {
    "modules": ResNet,
    "functions": Functional,
    "sequential": sequential,
    "wrapped": ByModules,
    "data-parallel": parallel,
    "with-inputs": lambda: (ResNet(), {"images": ("batch", 3, 64, 64)}),
    "evaluation": lambda: ResNet().eval(),
    "compiled": compiled,
    "channels-last": lambda: nn.Sequential(ResNet()).to(memory_format=torch.channels_last),
    "the-network-of-the-zoo": lambda: zoo.build("resnet18", **SMALL),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN)
def test_a_right_model_is_not_accused(name):
    assert_same(report(WRITTEN[name], **SMALL))


def test_a_padding_of_minus_infinity_is_that_of_max_pooling():
    pool = partial(nn.Sequential, nn.ConstantPad2d(1, float("-inf")), nn.MaxPool2d(3, 2))
    assert_same(report(lambda: ResNet(pool=pool), **SMALL))


@pytest.mark.slow
def test_a_right_bottleneck_is_not_accused():
    assert_same(report(lambda: ResNet(depth=50), "resnet50", **SMALL))


@pytest.mark.slow
def test_the_older_version_is_not_accused_of_its_stride():
    assert_same(report(lambda: ResNet(depth=50, version="1"), "resnet50-v1", **SMALL))


def test_the_right_net_for_cifar_is_not_accused():
    assert_same(report(Cifar, "resnet20"))


def test_a_leaky_relu_of_slope_zero_is_a_relu():
    assert_same(report(lambda: ResNet(act=partial(nn.LeakyReLU, 0.0)), **SMALL))


class Written(nn.Module):
    """A function as an activation."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


RELUS = {
    "maximum": lambda x: torch.maximum(x, torch.tensor(0.0)),
    "where": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    "where-negative": lambda x: torch.where(x < 0, torch.zeros_like(x), x),
    "mask": lambda x: x * (x > 0),
    "float-mask": lambda x: (x > 0).float() * x,
}


@pytest.mark.parametrize("name", RELUS)
def test_a_relu_in_other_words_is_a_relu(name):
    assert_same(report(lambda: ResNet(act=lambda: Written(RELUS[name])), **SMALL))


def test_a_sum_over_pixels_by_their_number_is_a_mean():
    pool = Written(lambda x: x.sum((2, 3), keepdim=True) / (x.shape[2] * x.shape[3]))
    assert_same(report(lambda: ResNet(head_pool=lambda: pool), **SMALL))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_other_draws_are_not_accused(seed):
    network = zoo.build("resnet18", **SMALL)
    found = compare_with(network, "model", ResNet, open_framework("torch"), draws=2, seed=seed).report
    assert [each.status for each in found.of("initialisation")] == ["passed"]


def test_folded_normalisations_in_evaluation_are_noted_and_not_accused():
    found = report(fused, **SMALL)
    assert not found.failed, found.failed
    assert "folded" in found.of("normalisation")[0].found


def exported(net, opset, training=False, **options):
    """A module as an ONNX network, with the exporter that needs no other package."""
    file = io.BytesIO()
    mode = torch.onnx.TrainingMode.PRESERVE if training else torch.onnx.TrainingMode.EVAL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, torch.randn(1, 3, 64, 64), file, dynamo=False, opset_version=opset, training=mode, **options
        )
    return Network.from_proto(onnx.load_from_string(file.getvalue()))


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 15, 17, 20])
def test_an_exported_model_is_not_accused(opset):
    found = report(lambda: exported(ResNet(), opset), **SMALL)
    assert not found.failed, found.failed
    assert found.judged


@pytest.mark.parametrize("name", RELUS)
def test_an_exported_relu_in_other_words_is_a_relu(name):
    open_batch = {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}}
    found = report(lambda: exported(ResNet(act=lambda: Written(RELUS[name])), 13, **open_batch), **SMALL)
    assert not found.failed, found.failed
    assert found.judged


@pytest.mark.parametrize("opset", [11, 17])
def test_an_exported_model_that_is_not_folded_is_the_same_function(opset):
    net = ResNet().eval()
    assert_same(report(lambda: exported(net, opset, training=True, do_constant_folding=False), **SMALL))


@pytest.mark.parametrize("opset", [11, 17])
def test_the_exported_net_for_cifar_is_not_accused(opset):
    def build():
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(Cifar().eval(), torch.randn(1, 3, 32, 32), file, dynamo=False, opset_version=opset)
        return Network.from_proto(onnx.load_from_string(file.getvalue()))

    found = report(build, "resnet20")
    assert not found.failed, found.failed


def test_trained_weights_are_not_judged_as_initial_ones():
    def build():
        net = ResNet(init=None)
        net(torch.randn(4, 3, 64, 64))
        return net

    found = report(build, **SMALL)
    assert not found.failed, found.failed
    assert found.of("initialisation")[0].status == "not tried"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inceptionv1", "lenet5-dense", "mobilenetv2", "preresnet18", "squeezenet"])
def test_other_networks_of_the_zoo_are_themselves(name):
    assert_same(report(lambda: zoo.build(name), name))


def test_a_reference_of_unknown_layers_cannot_be_judged():
    found = report(lambda: zoo.build("vit-tiny"), "vit-tiny")
    assert not found.judged


def test_a_model_that_decides_by_values_cannot_be_judged():
    class Deciding(ResNet):
        def forward(self, x):
            return super().forward(x if x.sum() > 0 else -x)

    found = report(Deciding, **SMALL)
    assert not found.judged
    assert "decisions by values" in found.findings[0].do


def test_torchvisions_own_networks_are_not_accused():
    models = pytest.importorskip("torchvision.models")
    assert_same(report(models.resnet50, "resnet50"))
    assert_same(report(models.resnet18, "resnet18"))


class Rewired(ResNet):
    """The same layers, but the last shortcut begins before a ReLU, or channels are exchanged."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, x):
        if self.how == "flipped":
            return super().forward(x.flip(1))
        if self.how == "turned":
            return super().forward(x.transpose(2, 3))
        return super().forward(x)[:, torch.arange(9, -1, -1)]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["flipped", "turned", "reversed"])
def test_what_is_no_layer_is_found_as_well(how):
    found = report(lambda: Rewired(how), **SMALL)
    assert found.failed


class Skipping(ResNet):
    """A shortcut that begins one block too early, or before the ReLU."""

    def __init__(self, before_activation):
        super().__init__()
        self.before_activation = before_activation

    def forward(self, x):
        x = self.pool(self.act(self.norm(self.stem(x))))
        if self.before_activation:
            raw = self.blocks[0](x, activated=False)
            return self.rest(self.act(self.blocks[1].path(torch.relu(raw)) + raw), 2)
        return self.rest(self.act(self.blocks[1].path(self.blocks[0](x)) + x), 2)


@pytest.mark.parametrize(
    ("before_activation", "words"),
    [(False, "reads after norm instead of after blocks.0"), (True, "at once instead of after activation")],
)
def test_the_same_layers_in_another_wiring_are_found(before_activation, words):
    (found,) = report(lambda: Skipping(before_activation), **SMALL).of("wiring")
    assert words in found.found


def test_checkpointing_is_found_because_it_updates_running_statistics_twice():
    (found,) = report(Checkpointed, **SMALL).failed
    assert "running means" in found.found


def test_arrays_are_left_as_they_were():
    net = ResNet()
    before = {name: each.detach().numpy().copy() for name, each in net.named_parameters()}
    report(lambda: net, **SMALL)
    assert all(np.array_equal(before[name], each.detach()) for name, each in net.named_parameters())


def test_a_file_that_never_had_normalisations_is_not_taken_for_a_folded_one():
    net = ResNet(norm=lambda channels: nn.Identity(), bias=True, stem_bias=True, shortcut="A").eval()
    (found, *_) = report(lambda: exported(net, 17), **SMALL).of("normalisation")
    assert found.status == "failed"
    assert "no batch normalisation" in found.found


def test_folded_weights_of_an_untrained_file_are_judged():
    found = report(lambda: exported(ResNet(init=None), 17), **SMALL)
    assert "PyTorch's default" in found.of("initialisation")[0].found


def test_a_file_exported_in_training_mode_is_not_accused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = exported(ResNet(), 17, training=True, do_constant_folding=False)
    assert not report(lambda: network, **SMALL).failed


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"act": nn.LeakyReLU}, "activation", "leaky ReLU (slope 0.01) instead of ReLU"),
        ({"pool": lambda: nn.AvgPool2d(3, 2, 1)}, "pooling", "average pooling instead of max pooling"),
        ({"stem": (3, 1, 1)}, "kernel", "3x3 instead of 7x7"),
        ({"act": nn.SiLU}, "activation", "SiLU instead of ReLU"),
        ({"act": nn.GELU}, "activation", "GELU instead of ReLU"),
        ({"pre": True}, "pre-activation", "pre-activation"),
        ({"zero_last": True}, "initialisation", "constant 0"),
    ],
)
def test_differences_are_found_in_exported_files_too(changes, kind, words):
    found = report(lambda: exported(ResNet(**changes), 17), **SMALL).of(kind)
    assert any(words in each.found for each in found), found
