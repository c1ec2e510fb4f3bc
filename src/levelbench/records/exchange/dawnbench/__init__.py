"""DAWNBench: its entries read, its leaderboard reproduced, its checks run, and entries written for it."""

from levelbench.records.exchange.dawnbench.board import COLUMNS, Row, leaderboard, value_of
from levelbench.records.exchange.dawnbench.checks import CHECKS, failed_checks
from levelbench.records.exchange.dawnbench.folder import read_entry, read_folder
from levelbench.records.exchange.dawnbench.writing import Written, write_entry

__all__ = [
    "CHECKS",
    "COLUMNS",
    "Row",
    "Written",
    "failed_checks",
    "leaderboard",
    "read_entry",
    "read_folder",
    "value_of",
    "write_entry",
]
