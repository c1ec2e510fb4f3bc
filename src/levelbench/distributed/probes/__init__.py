"""Checks of what a user writes for distributed training: schemes, communicators, ways to cut batches."""
