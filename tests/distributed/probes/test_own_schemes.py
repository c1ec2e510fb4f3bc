"""Every installed scheme passes its own check."""

import pytest

from levelbench import plugins
from levelbench.distributed.finding import named_scheme
from levelbench.distributed.probes import gradients as learning
from levelbench.distributed.probes.schemes import check_scheme


def schemes():
    """A name for each class that runs in threads; those of a framework have their own processes."""
    names = {point.value: name for name, point in plugins.names("scheme").items() if ".frameworks." not in point.value}
    return sorted(names.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", schemes())
def test_an_installed_scheme_passes(name, monkeypatch):
    monkeypatch.setattr(learning, "ATTEMPTS", ((0.1, 50), (0.02, 400)))
    monkeypatch.setattr(learning, "LONG", 100)
    report = check_scheme(named_scheme(name), ranks=(3,), steps=8)
    assert not report.failed


@pytest.mark.parametrize(
    ("name", "settings", "probe"),
    [
        ("top-k", {"momentum": 0.9}, "every worker counts"),
        ("top-k", {"momentum": 0.9, "ratio": 0.3}, "right on average"),
        ("sign", {"scale": "vote", "error_feedback": False}, "right on average"),
        ("diloco", {"period": 4}, "right on average"),
        ("all-reduce", {"algorithm": "tree"}, "traffic"),
        ("top-k", {"exchange_by": "doubling"}, "traffic"),
    ],
)
def test_an_installed_scheme_passes_in_other_settings(name, settings, probe):
    report = check_scheme(named_scheme(name, settings), ranks=(3,), steps=4, only=(probe,))
    assert not report.failed


SETTINGS = [
    ("sign", {"scale": "vote", "error_feedback": False}),
    ("sign", {"scale": "means"}),
    ("top-k", {"exchange_by": "doubling"}),
    ("top-k", {"momentum": 0.9}),
    ("random-k", {"error_feedback": True}),
    ("random-k", {}),
    ("threshold", {"relative": False}),
    ("threshold", {}),
    ("qsgd", {"pieces": True}),
    ("fp16", {}),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "settings", "framework"),
    # Schemes run the same code on each framework; a few show that their arrays do as well.
    [
        *((*each, "numpy") for each in SETTINGS),
        *((*each, "torch") for each in SETTINGS[::4]),
        (*SETTINGS[0], "jax"),
    ],
)
def test_gradients_that_are_not_finite_show_on_all_ranks_in_every_setting(name, settings, framework):
    pytest.importorskip(framework)
    report = check_scheme(named_scheme(name, settings), ranks=(2, 3), framework=framework, only=("not finite",))
    assert [each.status for each in report.of("not finite")] == ["passed"]
