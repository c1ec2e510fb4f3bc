"""The site's pages and the files that they share.

The one idea: a page is a function of data; where it goes, and when it is made again, is the build's.
"""

from __future__ import annotations

from levelbench.report.site.board_view import MOST_OTHERS, task_page
from levelbench.report.site.entry_view import entry_page
from levelbench.report.site.index_view import index_page
from levelbench.report.site.shared import assets

__all__ = ["MOST_OTHERS", "assets", "entry_page", "index_page", "task_page"]
