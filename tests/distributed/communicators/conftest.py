"""The check that every communicator passes, on threads."""

import pytest

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.probes.communicators import check_communicator


@pytest.fixture
def small(monkeypatch):
    """Shrink the large messages of the communicator check; test_threads.py checks with large ones."""
    monkeypatch.setitem(check_communicator.__kwdefaults__, "large", 1000)


@pytest.fixture
def keeps_its_contract():
    """Assert that all checks pass on all ranks."""

    def check(size, wrap=lambda each: each, frameworks=("numpy",), **options):
        for findings in run_ranks(size, lambda each: check_communicator(wrap(each), frameworks), **options):
            assert [each for each in findings if each.status != "passed"] == []
            assert len(findings) == 24 + len(frameworks)

    return check
