"""A named reference gets every setting that its framework's signature has an argument for, and the others are said."""

import numpy as np
import pytest

from levelbench.training import optimizers as ours
from levelbench.training.optimizers.wrappers import NATIVE, Native
from levelbench.training.probes.optimizer_references import reference_of, settings_of
from levelbench.training.probes.optimizer_runs import advanced
from levelbench.training.probes.optimizers import check_optimizer

pytest.importorskip("torch", reason="compares with PyTorch's optimizers")

from levelbench.planted.optimizers import MomentsProducts  # PyTorch is imported there


def given(optimizer, name):
    return dict(reference_of(optimizer, name).given)


def test_settings_go_under_the_names_of_pytorch():
    assert given(ours.Adam(0.1, 0.8, 0.95, 1e-3, 0.2, True), "torch.optim.Adam") == {
        "betas": (0.8, 0.95),
        "eps": 1e-3,
        "weight_decay": 0.2,
        "amsgrad": True,
    }
    adafactor = ours.Adafactor(0.1, clip=2.0, scale=0.01)
    assert given(adafactor, "torch.optim.Adafactor") == {
        "beta2_decay": -0.8,
        "eps": (None, 0.01),
        "d": 2.0,
        "weight_decay": 0.0,
    }
    muon = ours.Muon(0.1, scale="rms", iterations=3)
    assert given(muon, "torch.optim.Muon") == {
        "weight_decay": 0.0,
        "momentum": 0.95,
        "nesterov": True,
        "eps": 1e-7,
        "ns_steps": 3,
        "adjust_lr_fn": "match_rms_adamw",
    }


def test_settings_go_under_the_names_of_optax():
    pytest.importorskip("optax")
    free = ours.ScheduleFreeAdamW(0.01, weight_decay=0.01)
    assert given(free, "optax.contrib.schedule_free_adamw") == {
        "b1": 0.9,
        "b2": 0.999,
        "eps": 1e-8,
        "weight_decay": 0.01,
        "weight_lr_power": 2.0,
    }
    rms = given(ours.RMSProp(0.01, momentum=0.9), "optax.rmsprop")
    assert rms == {"decay": 0.99, "eps": 1e-8, "centered": False, "momentum": 0.9}


@pytest.mark.parametrize("name", NATIVE)
def test_no_setting_is_dropped_in_silence(name):
    if NATIVE[name] == "jax":
        pytest.importorskip("optax")
    rule = ours.Adam(0.01, beta1=0.7, beta2=0.8, epsilon=1e-4, weight_decay=0.3)
    found = reference_of(rule, name)
    passed = str(dict(found.given))
    for setting, value in {"beta1": 0.7, "beta2": 0.8, "epsilon": 1e-4, "weight_decay": 0.3}.items():
        assert (setting in found.missing) != (str(value) in passed)


def test_what_was_not_passed_is_reported():
    report = check_optimizer(ours.AdaGrad(0.1, lr_decay=0.5), "adam", steps=4).report
    (finding,) = report.of("reference: settings")
    assert finding.status == "noted"
    assert "no argument for lr_decay=0.5" in finding.found
    assert "it has beta1=0.9" in finding.found


def test_a_frameworks_optimizer_passes_its_settings_and_defaults_on():
    native = Native("torch.optim.AdamW", 0.1, betas=(0.5, 0.6))
    assert settings_of(native) == {
        "lr": 0.1,
        "beta1": 0.5,
        "beta2": 0.6,
        "epsilon": 1e-8,
        "weight_decay": 0.01,
        "amsgrad": False,
        "maximize": False,
        "capturable": False,
        "differentiable": False,
    }
    assert reference_of(native, "adamw").optimizer == ours.AdamW(0.1, 0.5, 0.6, 1e-8, 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("bfloat16", [False, True])
def test_muon_is_compared_with_the_form_that_it_computes(bfloat16):
    framework = "torch" if bfloat16 else "numpy"
    rule = ours.Muon(0.02, weight_decay=0.1, bfloat16=bfloat16)
    checked = check_optimizer(rule, "torch.optim.Muon", frameworks=(framework,), steps=8)
    assert [each.found for each in checked.report.failed if each.probe.startswith(("reference", "first"))] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (ours.ScheduleFreeAdamW(0.01, weight_decay=0.01), "optax.contrib.schedule_free_adamw"),
        (ours.RMSProp(0.01, momentum=0.9), "optax.rmsprop"),
    ],
)
def test_settings_that_were_dropped_before_accuse_nobody(rule, name):
    pytest.importorskip("optax")
    assert check_optimizer(rule, name, steps=8).report.failed == ()


def test_powers_of_a_decay_in_the_state_count_steps_as_well_as_a_number_does():
    states = [{"one": np.float64(0.9**at), "step": np.float64(at), "mean": np.float64(at**0.5)} for at in (6, 7, 8)]
    found = advanced(states, 1000)
    assert set(found) == {"one", "step"}
    assert found["step"] == 1008
    assert found["one"] == pytest.approx(0.9**1008)


def test_an_adam_that_keeps_the_powers_of_its_betas_is_not_accused():
    found = check_optimizer(MomentsProducts(), MomentsProducts.claims, frameworks=("numpy",), steps=16)
    assert list(found.report.failed) == []
