"""The leaderboard as a static site: one folder that opens from a disk, a server or a repository's pages."""
