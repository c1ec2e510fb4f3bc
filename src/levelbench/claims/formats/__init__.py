"""The report of the linter for other programs: JSON, SARIF, annotations of a workflow.

The one idea: each is plain data or plain lines made of one ``Report``; nothing is printed here.
"""

from __future__ import annotations

from levelbench.claims.formats.github import github_lines
from levelbench.claims.formats.json import as_json
from levelbench.claims.formats.sarif import as_sarif

__all__ = ["as_json", "as_sarif", "github_lines"]
