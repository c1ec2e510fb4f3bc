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


@pytest.mark.parametrize("name", schemes())
def test_an_installed_scheme_passes(name, monkeypatch):
    monkeypatch.setattr(learning, "ATTEMPTS", ((0.1, 50), (0.02, 400)))
    monkeypatch.setattr(learning, "LONG", 100)
    report = check_scheme(named_scheme(name), ranks=(3,), steps=8)
    assert not report.failed
