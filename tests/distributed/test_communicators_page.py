import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "communicators.md"


def test_the_examples_of_the_page_run_in_their_order():
    own, _, _ = PAGE.read_text().partition("\n## Libraries")
    blocks = re.findall(r"```python\n(.*?)```", own, flags=re.DOTALL)
    assert len(blocks) == 4
    names = {}
    for block in blocks:
        exec(block, names)
