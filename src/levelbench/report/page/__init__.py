"""The report of runs: one HTML file, with Markdown and CSV of every table in it."""
