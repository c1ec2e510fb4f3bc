from __future__ import annotations

import subprocess
import sys
from pkgutil import iter_modules

import pytest

from levelbench.errors import UnknownNameError
from levelbench.training import datasets


@pytest.mark.parametrize("name", datasets.names())
def test_each_name_gives_a_described_source(name, tmp_path):
    source = datasets.source(name)
    assert source.name == name
    assert source.licence
    assert source.attribution
    assert source.lacks(tmp_path) is None or "\n" not in source.lacks(tmp_path)


def test_a_source_is_an_attribute_too_and_always_the_same_one():
    assert datasets.fashion_mnist is datasets.fashion_mnist
    assert datasets.fashion_mnist.name == "fashion-mnist"
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = datasets.nothing_like_it


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="close: fashion-mnist"):
        datasets.source("fashion-mnits")


def test_names_are_known_without_importing_their_modules():
    code = "import sys; from levelbench.training import datasets; datasets.names(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"PIL", "ssl", "levelbench.training.datasets.images", "levelbench.training.datasets.cifar"} & set(loaded)


def test_no_module_hides_a_source_of_its_name():
    modules = {each.name for each in iter_modules(datasets.__path__)}
    assert not modules & {name.replace("-", "_") for name in datasets.names()}
