"""Communicators: over threads, MPI and a framework's library, and those that wrap another one."""
