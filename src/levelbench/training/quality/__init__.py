"""Qualities: how good a network is on a split."""

from levelbench.training.quality.base import Quality
from levelbench.training.quality.classification import AUROC, BalancedAccuracy, Top1, Top5, TopK
from levelbench.training.quality.perplexity import BitsPerCharacter, Perplexity
from levelbench.training.quality.regression import MAE, RMSE
from levelbench.training.quality.squad import SpanExactMatch, SpanF1
from levelbench.training.quality.translation import Bleu

__all__ = ["AUROC", "MAE", "RMSE", "BalancedAccuracy", "BitsPerCharacter", "Bleu", "Perplexity", "Quality"]
__all__ += ["SpanExactMatch", "SpanF1", "Top1", "Top5", "TopK"]
