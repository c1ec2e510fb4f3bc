"""DAWNBench: its entries read, its leaderboard reproduced, its checks run, and entries written for it."""

from levelbench.competition.exchange.dawnbench.folder import (
    CHECKS,
    COLUMNS,
    LeaderboardRow,
    failed_checks,
    leaderboard,
    read_entry,
    read_folder,
    value_of,
)
from levelbench.competition.exchange.dawnbench.writing import WrittenEntry, write_entry

__all__ = [
    "CHECKS",
    "COLUMNS",
    "LeaderboardRow",
    "WrittenEntry",
    "failed_checks",
    "leaderboard",
    "read_entry",
    "read_folder",
    "value_of",
    "write_entry",
]
