"""Trained networks in the store: found by their run, unless the run would no longer produce them."""

import pytest
from msgspec.structs import replace

from levelbench.experiments.inference.models import (
    Basis,
    TrainedModel,
    basis_of,
    find_model,
    keep_facts,
    kept_facts,
    model_path,
    stale,
)
from levelbench.experiments.inference.subject import digest_of_data
from levelbench.networks import zoo
from levelbench.networks.files import save
from levelbench.records.schema import Specification, Target


@pytest.fixture
def model(tmp_path):
    network, path = zoo.mlp(4, 3, 2), tmp_path / "small.onnx"
    save(network.stored(network.initialise(0)), path)
    return path


def kept(store, model, seed=0, source="s", **parts):
    path = model_path(store, "f" * 64, seed)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(model.read_bytes())
    spec = Specification("t", "r", "numpy", "cpu", {}, Target("top1", 0.9), "first", "wall", "1 epoch", 1.0)
    keep_facts(
        path, TrainedModel(digest_of_data(path), "f" * 64, seed, "run", "0" * 64, source, spec, {"test": 0.9}, **parts)
    )
    return path


BASIS = Basis("0.1.0", {"numpy": "2.4"}, "n" * 64, {"images": "d" * 64})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"levelbench": "0.2.0"}, "levelbench 0.1.0, and this is levelbench 0.2.0"),
        ({"libraries": {"numpy": "2.5"}}, "numpy 2.4, and this is 2.5"),
        ({"network": "m" * 64}, "the network that its recipe builds has changed"),
        ({"data": {"images": "e" * 64}}, "other data"),
    ],
)
def test_a_kept_network_that_the_run_would_no_longer_produce_does_not_count(tmp_path, model, change, why):
    path = kept(tmp_path, model, basis=BASIS)
    now = replace(BASIS, **change)
    found = find_model(tmp_path, "f" * 64, 0, "s", now)
    assert (found is None) == bool(why)
    assert why in stale(kept_facts(tmp_path, "f" * 64, 0), "s", now)
    assert path.exists()


def test_networks_are_distinguished_by_their_untrained_form():
    spec = Specification("t", "r", "numpy", "cpu", {}, Target("top1", 0.9), "first", "wall", "1 epoch", 1.0)
    one, same, other = (basis_of(spec, {"numpy": "2"}, zoo.mlp(4, width, 2), {}) for width in (3, 3, 5))
    assert one == same != other
    assert one.libraries == {"numpy": "2"}


def test_a_kept_network_is_found_by_its_run_unless_the_task_changed(tmp_path, model):
    path = kept(tmp_path, model)
    found = find_model(tmp_path, "f" * 64, 0, "s")
    assert found.path == path
    assert found.facts.quality == {"test": 0.9}
    assert find_model(tmp_path, "f" * 64, 0, "another text") is None
    assert find_model(tmp_path, "f" * 64, 1) is None


@pytest.mark.parametrize("suffix", [".onnx", ".json"])
def test_a_kept_network_that_was_changed_does_not_count(tmp_path, model, suffix):
    path = kept(tmp_path, model).with_suffix(suffix)
    path.write_bytes(path.read_bytes()[:-3])
    assert find_model(tmp_path, "f" * 64, 0) is None
