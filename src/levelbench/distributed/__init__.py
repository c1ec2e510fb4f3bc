"""Level 3, distributed training: communicators, schemes, partitioning, launching, traffic, simulation, checks."""
