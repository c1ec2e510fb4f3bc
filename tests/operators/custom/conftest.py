"""The tests' own cache of compiled operators, and the file of operators that most of them use."""

from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "operators.cpp"


@pytest.fixture(scope="session", autouse=True)
def cache(request):
    """The folder of compiled operators: pytest's own, so that a second session finds them compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(request.config.cache.mkdir("levelbench")))
        patch.setenv("LEVELBENCH_CXXFLAGS", "-O0")
        yield


@pytest.fixture(scope="session")
def compiled_operators(cache):
    """Classes by name."""
    from levelbench.operators.custom import load_file

    return {each.name: each for each in load_file(SOURCE)}


@pytest.fixture
def empty_registry(monkeypatch):
    from levelbench.operators.custom import definition

    monkeypatch.setattr(definition, "_REGISTERED", {})
