"""What a command prints on a terminal of 80 columns, as an SVG picture for the documentation.

    python tools/picture.py docs/pictures/compare.svg levelbench compare A B

The command runs in a pseudo-terminal, so that it prints its colours. What it prints on standard error is left out.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

WIDTH = 80


def printed(words: list[str]) -> str:
    """The output of a command on a terminal, with its escape sequences."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    with subprocess.Popen(words, stdout=theirs, stderr=subprocess.DEVNULL, env=environment):
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 65536):
                parts.append(part)
        except OSError:  # Linux: the other end is closed
            pass
    os.close(ours)
    return b"".join(parts).decode().replace("\r\n", "\n")


def main() -> None:
    """Run the command and write the picture."""
    if len(sys.argv) < 3 or not sys.argv[1].endswith(".svg"):
        raise SystemExit(__doc__)
    place, words = Path(sys.argv[1]), sys.argv[2:]
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text("$ " + shlex.join(words), style="bold"))
    console.print(Text.from_ansi(printed(words).rstrip()), soft_wrap=True)
    picture = console.export_svg(title="levelbench", theme=MONOKAI)
    # The picture asks no other server for a font.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("\n".join(line.rstrip() for line in picture.splitlines()) + "\n")


if __name__ == "__main__":
    main()
