import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from levelbench.distributed.communicators import mpi
from levelbench.distributed.communicators.mpi import Late, request_handle, until
from levelbench.distributed.launching import ENGINES, RankPlace
from levelbench.distributed.packing import Memory, dense
from levelbench.errors import CommunicationError, MissingError
from levelbench.measure.clocks import HOST, FakeClock

has_mpi = pytest.mark.skipif(mpi.lacks() is not None, reason=str(mpi.lacks()))


def run(what, ranks, folder, **environment):
    """The failure of a job, and what each rank wrote."""
    command = [sys.executable, str(Path(__file__).with_name("mpi_rank.py")), what, str(folder)]
    with ENGINES["mpi"].start(command, ranks, folder, {"OMP_NUM_THREADS": "1", **environment}) as running:
        assert running.wait(120)
        failure = running.failure()
    results = [folder / f"result-{rank}.json" for rank in range(ranks)]
    return failure, [json.loads(each.read_text()) if each.exists() else None for each in results]


@has_mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_mpi_is_a_communicator(ranks, tmp_path):
    failure, results = run("check", ranks, tmp_path)
    assert failure is None, "\n".join(failure.lines)
    for result in results:
        assert result["bad"] == []
        assert result["threads"] == "multiple"
        # MPI has no 16-bit floats: NumPy computes their sums.
        total = [ranks * at + ranks * (ranks - 1) / 2 for at in range(5)]
        assert result["halves"] == {"float16": total, "bfloat16": total}
        assert f"MPI calls it rank {results.index(result)} of {ranks}" in result["misplaced"]
    assert "receive from 1 of rank 0" in results[0]["late"]
    assert "0.2 s" in results[0]["late"]


@has_mpi
@pytest.mark.parametrize("what", ["die", "abort"])
def test_a_rank_that_dies_or_aborts_ends_the_job(what, tmp_path):
    began = HOST.now_ns()
    failure, _ = run(what, 2, tmp_path)
    assert failure is not None
    assert HOST.now_ns() - began < 50e9


PROFILER = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
static int reduced, sent;
int MPI_Iallreduce_c(const void *from, void *to, MPI_Count n, MPI_Datatype t, MPI_Op o, MPI_Comm c, MPI_Request *r) {
    reduced++;
    return PMPI_Iallreduce_c(from, to, n, t, o, c, r);
}
int MPI_Ibcast_c(void *at, MPI_Count n, MPI_Datatype t, int root, MPI_Comm c, MPI_Request *r) {
    sent++;
    return PMPI_Ibcast_c(at, n, t, root, c, r);
}
int MPI_Finalize(void) {
    FILE *file = fopen(getenv("COUNTS"), "a");
    fprintf(file, "%d %d\\n", reduced, sent);
    fclose(file);
    return PMPI_Finalize();
}
"""


@has_mpi
def test_a_profiler_between_us_and_mpi_sees_our_calls(tmp_path):
    here = Path(sys.executable).parent
    compiler = shutil.which("mpicc", path=f"{here}{os.pathsep}{os.environ.get('PATH', '')}")
    if compiler is None or shutil.which("gcc") is None:
        pytest.skip("there is no C compiler for MPI")
    (tmp_path / "profiler.c").write_text(PROFILER)
    library = tmp_path / "libprofiler.so"
    words = [compiler, "-shared", "-fPIC", "-o", str(library), str(tmp_path / "profiler.c")]
    subprocess.run(words, check=True, capture_output=True)
    failure, _ = run("count", 2, tmp_path, LD_PRELOAD=str(library), COUNTS=str(tmp_path / "counts"))
    assert failure is None, "\n".join(failure.lines)
    assert (tmp_path / "counts").read_text() == "12 3\n" * 2


def test_without_mpi4py_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr(mpi.importlib.util, "find_spec", lambda name: None)
    assert "mpi4py is not installed" in mpi.lacks()
    with pytest.raises(MissingError, match=r"levelbench\[mpi\]"):
        mpi.open_mpi(RankPlace(0, 1, 0, "127.0.0.1", 0, "mpi"), 1.0)


def test_a_wait_ends_with_the_first_answer_or_the_timeout():
    answers = iter([None, None, "there"])
    assert until(lambda: next(answers), 1.0, FakeClock(tick_ns=1000)) == "there"
    with pytest.raises(Late):
        until(lambda: None, 1.0, FakeClock(tick_ns=300_000_000))


def test_a_long_wait_sleeps_for_a_hundredth_of_the_time_waited(monkeypatch):
    naps = []
    monkeypatch.setattr("levelbench.distributed.communicators.mpi.sleep", naps.append)
    with pytest.raises(Late):
        until(lambda: None, 0.004, FakeClock(tick_ns=1_000_000), naps=True)
    assert naps == pytest.approx([0.00002, 0.00003, 0.00004])


def test_memory_is_shared_with_the_array_if_possible():
    array = np.ones((2, 3))
    memory = Memory(array)
    memory.host[:] = 2
    assert memory.result() is array
    assert (array == 2).all()
    assert dense(array).base is not None


@pytest.mark.parametrize("array", [np.ones((2, 3)).T, np.ones((4, 4))[::2, ::2]])
def test_a_non_contiguous_array_is_copied_and_written_back(array):
    memory = Memory(array)
    assert memory.host.tolist() == [1.0] * array.size
    memory.host[:] = np.arange(array.size)
    assert memory.result() is array
    assert array.ravel().tolist() == list(range(array.size))


def test_a_read_only_array_gives_a_new_one():
    array = np.ones(3)
    array.flags.writeable = False
    memory = Memory(array)
    memory.host[:] = 5
    found = memory.result()
    assert array.tolist() == [1.0] * 3
    assert found.tolist() == [5.0] * 3


def test_an_error_while_polling_is_named_like_one_while_waiting():
    @contextmanager
    def named():
        try:
            yield
        except OSError as error:
            raise CommunicationError("receive from 1", str(error), "read the logs") from error

    def look():
        raise OSError("lost")

    pending = request_handle(named, SimpleNamespace(Test=look), lambda: None, 1.0)
    with pytest.raises(CommunicationError, match="receive from 1"):
        pending.done()
    with pytest.raises(CommunicationError, match="receive from 1"):
        pending.wait()
