"""Runs, their groups and their ranks as tables."""
