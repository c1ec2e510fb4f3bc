"""Images as files, made by Pillow."""

from __future__ import annotations

import io

import numpy as np
import pytest


@pytest.fixture
def encode():
    """``encode(pixels, "PNG")``: the file of pixels (h, w) or (h, w, channels) uint8; ``how`` goes to Pillow."""
    image = pytest.importorskip("PIL.Image")

    def made(pixels, form="PNG", mode=None, **how):
        stored = io.BytesIO()
        picture = image.fromarray(np.asarray(pixels))
        (picture.convert(mode) if mode else picture).save(stored, form, **how)
        return stored.getvalue()

    return made


@pytest.fixture
def noise():
    def made(height, width, seed=0):
        return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)

    return made
