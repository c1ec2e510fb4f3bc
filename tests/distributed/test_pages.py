"""The code in the documentation works."""

import re
from pathlib import Path

import pytest

from levelbench.distributed.finding import named_scheme
from levelbench.distributed.probes.schemes import check_scheme

DOCS = Path(__file__).parents[2] / "docs"


def blocks(text):
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.slow
def test_the_scheme_of_the_page_passes_every_probe(tmp_path):
    path = tmp_path / "my_scheme.py"
    path.write_text(blocks((DOCS / "guides" / "own-scheme.md").read_text())[0])
    report = check_scheme(named_scheme(str(path)), ranks=(3,), steps=8)
    assert not report.failed
    assert named_scheme(f"{path}:gather-all", {"scale": 0.5}).scale == 0.5


def test_the_examples_of_the_page_run_in_their_order():
    own, _, _ = (DOCS / "reference" / "communicators.md").read_text().partition("\n## Libraries")
    examples = blocks(own)
    assert len(examples) == 4
    names = {}
    for block in examples:
        exec(block, names)
