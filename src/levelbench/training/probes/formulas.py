"""Figures by their names, computed from outputs and labels as scikit-learn defines them, to compare qualities with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.training.quality import Quality, area_under_roc

Numbers = NDArray[np.float64]


def values_of(quality: Quality, outputs: NDArray[Any], truth: NDArray[Any]) -> tuple[float, ...]:
    """What a quality of this name may be, one value for each definition in use; none for an unknown name.

    ``outputs`` are scores (n, ..., classes), or numbers in the shape of ``truth`` but for axes of size 1.
    """
    name = "".join(each for each in quality.metric.lower() if each.isalnum())
    given = np.asarray(outputs, np.float64)
    if truth.dtype.kind == "f":
        found = _of_numbers(name, given.reshape(truth.shape), truth.astype(np.float64))
    elif truth.ndim == 1:
        found = _of_classes(name, given, truth)
    elif name in ("perplexity", "ppl") and getattr(quality, "ignored", None) is None:
        found = (math.exp(_surprisal(given, truth)),)
    else:
        found = ()
    return tuple(100 * each for each in found) if quality.high == 100 else found


def _of_numbers(name: str, given: Numbers, truth: Numbers) -> tuple[float, ...]:
    errors = given - truth
    squares = float((errors**2).mean())
    if name in ("rmse", "rootmeansquarederror"):
        return (math.sqrt(squares), float(np.sqrt((errors**2).mean(axis=0)).mean()))
    if name in ("mse", "meansquarederror"):
        return (squares,)
    if name in ("mae", "meanabsoluteerror"):
        return (float(np.abs(errors).mean()),)
    if name in ("mape", "meanabsolutepercentageerror") and truth.all():
        share = float(np.abs(errors / truth).mean())
        return (share, 100 * share)
    if name in ("pearson", "pearsonr") and truth.size == len(truth) and given.std() > 0 and truth.std() > 0:
        return (float(np.corrcoef(given.ravel(), truth.ravel())[0, 1]),)
    if name in ("r2", "r2score"):
        parts = (errors**2).sum(axis=0), ((truth - truth.mean(axis=0)) ** 2).sum(axis=0)
        return (1 - float(parts[0].sum() / parts[1].sum()), float((1 - parts[0] / parts[1]).mean()))
    figure, k = name.rstrip("0123456789"), name[len(name.rstrip("0123456789")) :]
    if figure in ("hr", "hitrate", "ndcg") and k and truth.ndim == 2 and np.all((truth > 0).sum(axis=1) == 1):
        places = (given >= given[truth > 0][:, None]).sum(axis=1)
        gains = np.ones(len(places)) if figure != "ndcg" else 1 / np.log2(1.0 + places)
        return (float(np.where(places <= int(k), gains, 0.0).mean()),)
    return ()


def _of_classes(name: str, scores: Numbers, truth: NDArray[Any]) -> tuple[float, ...]:
    guessed, classes = scores.argmax(axis=1), scores.shape[1]
    right = guessed == truth
    if name in ("top1", "accuracy", "acc", "top1accuracy"):
        return (float(right.mean()),)
    if name.startswith("top") and name[3:].isdecimal():
        rank = (scores > scores[np.arange(len(truth)), truth][:, None]).sum(axis=1)
        return (float((rank < int(name[3:])).mean()),)
    if name in ("error", "errorrate", "top1error"):
        return (1 - float(right.mean()),)
    present = np.unique(truth)
    if name in ("balancedaccuracy", "balancedacc"):
        return (float(np.mean([right[truth == each].mean() for each in present])),)
    if name in ("logloss", "crossentropy", "nll"):
        return (_surprisal(scores, truth),)
    if name in ("perplexity", "ppl"):
        return (math.exp(_surprisal(scores, truth)),)
    if name in ("brier", "brierscore"):
        parts = np.exp(scores - scores.max(axis=1, keepdims=True))
        apart = parts / parts.sum(axis=1, keepdims=True) - np.eye(classes)[truth]
        whole = float((apart**2).sum(axis=1).mean())
        # Brier's sum over classes, its half (that of one of two classes), and the mean.
        return (whole, whole / 2, whole / classes)
    if name in ("kappa", "cohenkappa", "cohenskappa"):
        return tuple(_kappa(guessed, truth, classes, power) for power in (0, 1, 2))
    if name in ("quadraticweightedkappa", "quadratickappa", "qwk"):
        return (_kappa(guessed, truth, classes, 2),)
    if (beta := _BETAS.get(name.removesuffix("score").replace("macro", ""))) is not None:
        every = [_f(guessed == each, truth == each, beta) for each in range(classes)]
        macro = (float(np.mean(every)), float(np.mean([every[each] for each in np.union1d(present, guessed)])))
        shares = np.bincount(truth, minlength=classes) / len(truth)
        # Without a word on the average: of the second of two classes, or any of three for more.
        others = (every[1],) if classes == 2 else (float(right.mean()), float(shares @ np.array(every)))
        return macro if "macro" in name else (*others, *macro)
    if name in ("mcc", "matthews", "matthewscorrelation"):
        return (_matthews(guessed, truth, classes),)
    if classes == 2 and name in ("auroc", "auc", "rocauc"):
        return (area_under_roc(scores[:, 1] - scores[:, 0], truth),)
    if classes == 2 and name in ("averageprecision", "ap"):
        return (_average_precision(scores[:, 1] - scores[:, 0], truth == 1),)
    return ()


def _surprisal(scores: Numbers, truth: NDArray[Any]) -> float:
    scores = scores - scores.max(axis=-1, keepdims=True)
    own = np.take_along_axis(scores, truth[..., None], -1)[..., 0]
    return float((np.log(np.exp(scores).sum(axis=-1)) - own).mean())


_BETAS = {"f1": 1.0, "f2": 2.0, "f05": 0.5, "precision": 0.0, "recall": math.inf}


def _f(guessed: NDArray[np.bool_], wanted: NDArray[np.bool_], beta: float) -> float:
    """Van Rijsbergen's F; without weight on recall it is the precision, with infinite weight the recall."""
    weight = 1.0 if beta == math.inf else beta**2 / (1 + beta**2)
    both = float((1 - weight) * guessed.sum() + weight * wanted.sum())
    return int((guessed & wanted).sum()) / both if both else 0.0


def _matthews(guessed: NDArray[Any], truth: NDArray[Any], classes: int) -> float:
    """Gorodkin's (2004) coefficient of any number of classes."""
    table = np.zeros((classes, classes))
    np.add.at(table, (truth, guessed), 1)
    total, wanted, given = table.sum(), table.sum(axis=1), table.sum(axis=0)
    below = (total**2 - (given**2).sum()) * (total**2 - (wanted**2).sum())
    return float((np.trace(table) * total - wanted @ given) / math.sqrt(below)) if below > 0 else 0.0


def _kappa(guessed: NDArray[Any], truth: NDArray[Any], classes: int, power: int) -> float:
    """Cohen's (1960) kappa; with weights |i - j|^power (1968) for a power above 0."""
    wanted, given = (np.bincount(each, minlength=classes) / len(truth) for each in (truth, guessed))
    places = np.arange(classes)
    weights = (places[:, None] != places) * np.abs(places[:, None] - places) ** float(power)
    chance = float(wanted @ weights @ given)
    return 1 - float(weights[truth, guessed].mean()) / chance if chance else 1.0


def _average_precision(scores: Numbers, wanted: NDArray[np.bool_]) -> float:
    """The mean over the positives of the precision at each one's score; equal scores count as one step."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(wanted[order])
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    steps = np.diff(hits[last], prepend=0)
    return float((steps * hits[last] / (last + 1)).sum() / max(int(wanted.sum()), 1))
