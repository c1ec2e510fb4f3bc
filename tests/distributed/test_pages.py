"""The scheme in the documentation is correct."""

import re
from pathlib import Path

from levelbench.distributed.finding import named_scheme
from levelbench.distributed.probes.schemes import check_scheme


def test_the_scheme_of_the_page_passes_every_probe(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "own-scheme.md"
    path = tmp_path / "my_scheme.py"
    path.write_text(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)[0])
    report = check_scheme(named_scheme(str(path)), ranks=(3,), steps=8)
    assert not report.failed
    assert named_scheme(f"{path}:gather-all", {"scale": 0.5}).scale == 0.5


PAGE = Path(__file__).parents[2] / "docs" / "communicators.md"


def test_the_examples_of_the_page_run_in_their_order():
    own, _, _ = PAGE.read_text().partition("\n## Libraries")
    blocks = re.findall(r"```python\n(.*?)```", own, flags=re.DOTALL)
    assert len(blocks) == 4
    names = {}
    for block in blocks:
        exec(block, names)
