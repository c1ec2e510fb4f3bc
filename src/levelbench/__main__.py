"""``python -m levelbench``."""

from levelbench.cli import main

main()
