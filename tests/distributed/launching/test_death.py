import random
import signal

import pytest

from levelbench.distributed.launching.environment import marked

RANKS = 3
WAYS = ["SIGKILL", "SIGKILL", "SIGSEGV", "SIGSTOP", "exit", "exception"]
# With those of test_engines they are 20.
ENGINES = ["process"] * 10 + ["hosts"] * 2 + ["mpi"] * 3


def draw(number):
    """A way to die for each number, the same each time."""
    source = random.Random(number)
    return source.randrange(RANKS), WAYS[number % len(WAYS)], source.randrange(1, 40)


@pytest.mark.parametrize("number", range(len(ENGINES)), ids=lambda n: f"{ENGINES[n]}-{draw(n)[1]}-{n}")
def test_a_rank_that_dies_is_named_and_nothing_is_left(start, team, tmp_path, number):
    engine, (victim, how, rounds) = ENGINES[number], draw(number)
    running = start(engine, team(tmp_path, victim, how, rounds), RANKS)
    assert running.wait(120), "it did not end in time"
    failure = running.failure()
    assert failure.rank == victim, failure
    assert failure.lines[-1 if how != "exception" else 2] == f"rank {victim} fails by {how}"
    if how == "SIGSTOP":
        assert failure.reason.startswith(f"rank {victim} did not answer")
    elif how.startswith("SIG"):
        assert failure.signal == getattr(signal, how)
    else:
        assert failure.code == {"exit": 3, "exception": 1}[how]
    assert marked(running.job) == []


def test_a_keeper_that_is_killed_takes_its_rank_along_and_is_told_of(start):
    running = start("process", ["sleep", "100"], 1)
    running._processes[0].kill()
    assert running.wait(120)
    assert running.failure().signal == signal.SIGKILL
