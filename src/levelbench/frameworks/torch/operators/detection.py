"""Non-maximum suppression: the best boxes of each class that do not overlap a better one too much."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from levelbench.frameworks.torch.operators.registry import Function, maker
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


@maker("NonMaxSuppression")
def _non_max_suppression(node: OperatorNode) -> Function:
    centred = bool(node["center_point_box"])

    def suppress(boxes: Tensor, scores: Tensor, most: Any = None, overlap: Any = None, threshold: Any = None) -> Tensor:
        """Rows of (batch, class, box), best first within a class; all classes of all batches are done side by side."""
        count = min(0 if most is None else int(np.asarray(most).item()), boxes.shape[1])
        limit = 0.0 if overlap is None else float(np.asarray(overlap).item())
        left = scores
        if threshold is not None:
            left = torch.where(scores > float(np.asarray(threshold).item()), scores, -math.inf)
        if count == 0 or scores.numel() == 0:
            return torch.zeros((0, 3), dtype=torch.int64, device=boxes.device)
        # (batch, 1, box, box), for all classes.
        near = (_overlaps(boxes, centred) > limit).unsqueeze(1)
        near = near | torch.eye(boxes.shape[1], dtype=torch.bool, device=boxes.device)
        chosen, found = [], []
        for _ in range(count):
            best = left.argmax(-1, keepdim=True)
            found.append(left.gather(-1, best) > -math.inf)
            chosen.append(best)
            rows = near.expand(-1, scores.shape[1], -1, -1)
            gone = rows.gather(2, best.unsqueeze(-1).expand(-1, -1, -1, rows.shape[3])).squeeze(2)
            left = left.masked_fill(gone, -math.inf)
        real, picked = torch.cat(found, -1), torch.cat(chosen, -1)
        places = torch.nonzero(real)
        return torch.cat([places[:, :2], picked[real].unsqueeze(1)], 1)

    return suppress


def _overlaps(boxes: Tensor, centred: bool) -> Tensor:
    """Intersection over union of all pairs: (batch, box, box); 0 with a box without area."""
    if centred:
        middle, half = boxes[..., :2], boxes[..., 2:] / 2
        low, high = middle - half, middle + half
    else:
        # Two opposite corners, in any order.
        low = torch.minimum(boxes[..., :2], boxes[..., 2:])
        high = torch.maximum(boxes[..., :2], boxes[..., 2:])
    areas = (high - low).prod(-1)
    sides = torch.minimum(high.unsqueeze(2), high.unsqueeze(1)) - torch.maximum(low.unsqueeze(2), low.unsqueeze(1))
    common = sides.clamp(min=0).prod(-1)
    union = areas.unsqueeze(2) + areas.unsqueeze(1) - common
    return torch.where((common > 0) & (union > 0), common / union, 0)
