"""Every rule that an entry is held to, in groups; what each finds is said with file, field and what to do.

The one idea: rules are independent of each other and of where an entry came from, and a list of codes says them all
(``findings.CODES``), so a leaderboard's own machine can say what a reviewer would have had to look for.
"""

from levelbench.records.submissions.rules.checking import check, check_file, check_folder
from levelbench.records.submissions.rules.findings import CODES, Finding, Severity, ordered, worst

__all__ = ["CODES", "Finding", "Severity", "check", "check_file", "check_folder", "ordered", "worst"]
