import os
import re
from pathlib import Path

import pytest
from hypothesis import settings

GOLDEN = Path(__file__).parent / "golden"

# Workers side by side have a core each: a second thread of one would wait for the other's.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Compiling is most of what the tests of JAX do. Without LLVM's optimisations it takes less than half, and what is
# computed is the same program; HLO is optimised all the same.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

# The same examples each time, so that a change fails for what it changed and not by chance;
# HYPOTHESIS_PROFILE=explore draws others, and more of them.
settings.register_profile("suite", derandomize=True)
settings.register_profile("explore", max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_addoption(parser):
    parser.addoption("--golden", action="store_true", help="write the golden files anew")


@pytest.fixture
def golden(request):
    """Compare with a file under tests/golden; ``pytest --golden`` writes it anew."""

    def check(name, text, *, replace=()):
        for pattern, by in replace:
            text = re.sub(pattern, by, text)
        path = GOLDEN / f"{name}.txt"
        if request.config.getoption("--golden"):
            path.write_text(text)
        assert path.read_text() == text, f"{path.name} differs; look at it, then pytest --golden"

    return check
