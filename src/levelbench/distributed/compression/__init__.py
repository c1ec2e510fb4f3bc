"""Compression of gradients: compressors, and how ranks exchange what they made."""
