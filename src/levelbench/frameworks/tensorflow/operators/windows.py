"""Sliding windows: convolutions and pooling."""
