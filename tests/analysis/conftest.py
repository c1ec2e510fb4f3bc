"""Made-up runs, which benchmarks/analysis.py simulates with, too."""

import pytest
from benchmarks.analysis import SPECIFICATION, made_group, made_run


@pytest.fixture(scope="session")
def specification():
    return SPECIFICATION


@pytest.fixture(scope="session")
def run():
    return made_run


@pytest.fixture(scope="session")
def group():
    return made_group
