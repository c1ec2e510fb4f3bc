"""Checks of user code for distributed training: schemes, communicators, ways to partition batches."""
