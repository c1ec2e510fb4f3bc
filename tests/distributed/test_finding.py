import sys

import numpy as np
import pytest

from levelbench import plugins
from levelbench.distributed.finding import (
    communicator_kinds,
    load_schemes,
    named_scheme,
    open_communicator,
    settings_of,
)
from levelbench.distributed.launching import RankPlace
from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.errors import DefinitionError, MissingError, UnknownNameError, UsageError

MINE = """
from dataclasses import dataclass
from levelbench.distributed.schemes.parameter_server import ParameterServer
from levelbench.distributed.scheme import Scheme

@dataclass(frozen=True)
class Mine(ParameterServer):
    name = "mine"
    extra: int = 1
"""


@pytest.fixture
def write(tmp_path):
    def add(text):
        path = tmp_path / "mine.py"
        path.write_text(text)
        return path

    return add


def test_an_object_named_scheme_is_used(write):
    (found,) = load_schemes(write(MINE + "other = Mine(1)\nscheme = Mine(2)\n")).items()
    assert (found[0], found[1].servers) == ("mine", 2)


def test_otherwise_all_instances_are_used(write):
    assert list(load_schemes(write(MINE + "one = Mine(1)\ntwo = Mine(2)\n"))) == ["one", "two"]


def test_otherwise_its_own_classes_are_used_with_their_defaults(write):
    (found,) = load_schemes(write(MINE)).items()
    assert (found[0], found[1].extra) == ("Mine", 1)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("x = 1\n", DefinitionError, "defines no scheme"),
        ("x = 1\ny = x / 0\n", DefinitionError, "ZeroDivisionError: division by zero at line 2"),
        (
            MINE.replace("int = 1", "int").replace("Mine(ParameterServer)", "Mine(Scheme)"),
            DefinitionError,
            "has no start",
        ),
        (MINE + "    def __post_init__(self):\n        raise ValueError('no')\n", DefinitionError, "ValueError: no at"),
    ],
)
def test_what_is_wrong_with_a_file_is_reported(write, text, error, message):
    with pytest.raises(error, match=message):
        load_schemes(write(text))


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        load_schemes(tmp_path / "gone.py")


def test_a_name_with_settings_gives_a_scheme():
    assert named_scheme("all-reduce", {"bucket_mb": 2.0}) == AllReduce(bucket_mb=2.0)


def test_an_alias_is_a_name():
    assert named_scheme("dsgd", {}) == AllReduce()


def test_an_unknown_setting_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match="bucket_mb"):
        named_scheme("all-reduce", {"buckets_mb": 2.0})


def test_a_value_of_another_type_is_refused():
    with pytest.raises(UsageError, match="must be a number"):
        named_scheme("all-reduce", {"bucket_mb": "much"})


def test_an_integer_is_accepted_as_a_float():
    assert settings_of(named_scheme("all-reduce", {"bucket_mb": 2}))["bucket_mb"] == 2.0


def test_a_scheme_of_a_file_is_selected_by_either_name_after_a_colon(write):
    path = write(MINE)
    assert type(named_scheme(str(path))).__name__ == "Mine"
    assert settings_of(named_scheme(f"{path}:mine", {"extra": 4})) == {"servers": 1, "extra": 4}
    assert settings_of(named_scheme(f"{path}:Mine", {"extra": 4})) == {"servers": 1, "extra": 4}
    with pytest.raises(UnknownNameError, match="mine"):
        named_scheme(f"{path}:yours")


def test_an_instance_in_a_file_keeps_its_settings(write):
    assert named_scheme(str(write(MINE + "scheme = Mine(2)\n")), {"extra": 3}).servers == 2


def test_a_setting_of_an_unsupported_type_is_refused(write):
    path = write(MINE.replace("extra: int = 1", "extra: tuple = ()"))
    with pytest.raises(DefinitionError, match="not an int, float, str or bool"):
        settings_of(named_scheme(str(path)))


ALONE = RankPlace(0, 1, 0, "127.0.0.1", 0, "process")


def test_the_kinds_are_known_without_importing_a_library():
    before = set(sys.modules)
    assert set(communicator_kinds()) == {"gloo", "mpi", "nccl"}
    assert not {"torch.distributed.fsdp", "mpi4py.MPI"} & (set(sys.modules) - before)


def test_an_unknown_kind_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="close: gloo"):
        open_communicator("glo", ALONE)


def test_a_broken_plugin_does_not_hide_others(monkeypatch):
    def load(kind, name):
        if name == "jax":
            raise DefinitionError("framework 'jax'", "it does not load", "repair it")
        return load_it(kind, name)

    load_it = plugins.load
    monkeypatch.setattr(plugins, "load", load)
    assert "gloo" in communicator_kinds()


def test_a_communicator_of_one_rank_is_opened_and_closed():
    dist = pytest.importorskip("torch.distributed")
    communicator = open_communicator("gloo", ALONE, 5.0)
    assert (communicator.name, communicator.rank, communicator.size) == ("gloo", 0, 1)
    assert communicator.all_reduce(np.ones(2)).tolist() == [1.0, 1.0]
    assert dist.is_initialized()
    communicator.close()
    assert not dist.is_initialized()


def test_ranks_without_a_port_cannot_meet():
    pytest.importorskip("torch")
    with pytest.raises(UsageError, match="MASTER_PORT"):
        open_communicator("gloo", RankPlace(0, 2, 0, "127.0.0.1", 0, "mpi"), 5.0)


def test_nccl_without_a_gpu_says_so():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(MissingError, match="nccl"):
        open_communicator("nccl", RankPlace(0, 1, 0, "127.0.0.1", 0, "process"), 5.0)


def test_the_interface_towards_this_machine_is_the_loopback():
    pytest.importorskip("torch")
    from levelbench.frameworks.torch.communicator import interface_towards

    assert interface_towards("127.0.0.1", 80) == "lo"
    assert interface_towards("no address at all", 80) is None


@pytest.mark.parametrize(
    ("preset", "given", "meant", "settings"),
    [
        ("model-averaging", {"every": 4}, "periodic", {"period": 4}),
        ("mavg", {"optimizer_state": True}, "periodic", {"period": 1, "optimizer_state": True}),
        ("local-sgd", {"growth": 0.5}, "periodic", {"growth": 0.5}),
        ("diloco", {"period": 4}, "periodic", {"period": 4, "outer_lr": 0.7, "outer_momentum": 0.9}),
        ("fp16", {"narrow": True}, "cast", {"kind": "float16", "narrow": True}),
        ("bf16", {"error_feedback": False}, "cast", {"kind": "bfloat16", "error_feedback": False}),
        ("asgd", {"servers": 2}, "ssp", {"servers": 2, "stale": -1}),
    ],
)
def test_a_preset_is_another_scheme_with_settings(preset, given, meant, settings):
    scheme = named_scheme(preset, given)
    assert scheme.meant == named_scheme(meant, settings)
    # Records contain the settings that it had before it became a preset.
    assert given.keys() <= settings_of(scheme).keys() <= {*settings_of(scheme.meant), "every"} - {"kind", "stale"}
    promises = ("consistent", "replicated", "lockstep")
    assert [getattr(scheme, each) for each in promises] == [getattr(scheme.meant, each) for each in promises]
    shapes = {"weight": (12, 9), "bias": (9,)}
    assert scheme.traffic(shapes, 4, 4, 1) == scheme.meant.traffic(shapes, 4, 4, 1)
    assert scheme.workers(4) == scheme.meant.workers(4)


def test_more_ranks_on_a_machine_than_gpus_are_refused_over_nccl(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UsageError, match="rank 6 over nccl, number 2 on its machine: PyTorch sees 2 GPUs"):
        open_communicator("nccl", RankPlace(6, 8, 2, "127.0.0.1", 1, "process"), 5.0)


def test_a_file_may_import_a_module_next_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "beside_a_scheme.py").write_text("from levelbench.distributed.schemes.all_reduce import AllReduce\n")
    path = tmp_path / "mine.py"
    path.write_text("import beside_a_scheme\n\nscheme = beside_a_scheme.AllReduce()\n")
    assert load_schemes(path) == {"all-reduce": AllReduce()}
