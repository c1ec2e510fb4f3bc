import sys

import numpy as np
import pytest

from levelbench import plugins
from levelbench.distributed.communicators.opening import communicator_kinds, open_communicator
from levelbench.distributed.launching import Place
from levelbench.errors import DefinitionError, MissingError, UnknownNameError, UsageError

ALONE = Place(0, 1, 0, "127.0.0.1", 0, "process")


def test_the_kinds_are_known_without_importing_a_library():
    before = set(sys.modules)
    assert set(communicator_kinds()) == {"gloo", "mpi", "nccl"}
    assert not {"torch.distributed.fsdp", "mpi4py.MPI"} & (set(sys.modules) - before)


def test_an_unknown_kind_answers_with_the_nearest():
    with pytest.raises(UnknownNameError, match="close: gloo"):
        open_communicator("glo", ALONE)


def test_a_plugin_that_does_not_load_hides_no_other(monkeypatch):
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
        open_communicator("gloo", Place(0, 2, 0, "127.0.0.1", 0, "mpi"), 5.0)


def test_nccl_without_a_gpu_says_so():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(MissingError, match="nccl"):
        open_communicator("nccl", Place(0, 1, 0, "127.0.0.1", 0, "process"), 5.0)


def test_the_interface_towards_this_machine_is_the_loopback():
    pytest.importorskip("torch")
    from levelbench.frameworks.torch.communicator import interface_towards

    assert interface_towards("127.0.0.1", 80) == "lo"
    assert interface_towards("no address at all", 80) is None
