"""Run the commands of docs/start/tutorial.md in an empty folder, and write what they print below each.

    python tools/tutorial.py

The Python blocks of the page are saved first, under the name that the sentence before each gives. Lines of progress
(3/10 ...) and the name of the temporary folder are left out, and sentences are wrapped as on a terminal.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "start" / "tutorial.md"
WIDTH = 80


def regenerated(page: str, folder: Path) -> str:
    """``page`` with the output of each command of a ``console`` block, run in ``folder`` in their order."""
    for name, code in re.findall(r"Save this as `([^`]+)`.*?```python\n(.*?)```", page, flags=re.DOTALL):
        (folder / name).write_text(code)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    environment.pop("LEVELBENCH_STORE", None)

    def run(block: re.Match[str]) -> str:
        command = block[1]
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 1, 4):  # 1 is a finding or a worse verdict, 4 an unclear one
            raise SystemExit(f"{command}\n{done.stderr}")
        printed = done.stdout.replace(f"{folder}/", "").rstrip()
        printed = re.sub(r"^\d+/\d+ .*\n", "", printed, flags=re.MULTILINE)
        return f"```console\n$ {command}\n" + "\n".join(map(wrapped, printed.splitlines())) + "\n```"

    return re.sub(r"```console\n\$ (.*?)\n.*?```", run, page, flags=re.DOTALL)


def wrapped(line: str) -> str:
    """``line`` as a terminal of ``WIDTH`` columns shows it; only sentences are longer, since tables are fitted."""
    if len(line) <= WIDTH:
        return line.rstrip()
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(line, WIDTH, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False)


def main() -> None:
    """Write the page anew."""
    if sys.argv[1:]:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(regenerated(PAGE.read_text(), Path(folder)))


if __name__ == "__main__":
    main()
