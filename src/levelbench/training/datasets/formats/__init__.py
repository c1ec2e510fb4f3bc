"""Readers of file formats: strict, bounded, and executing nothing."""
