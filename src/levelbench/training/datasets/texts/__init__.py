"""Text as data: translation, mails, characters, questions on paragraphs."""

from levelbench.training.datasets.texts.characters import Characters
from levelbench.training.datasets.texts.mails import Mails
from levelbench.training.datasets.texts.passages import Passage
from levelbench.training.datasets.texts.squad import Squad
from levelbench.training.datasets.texts.tokens import BytePairs
from levelbench.training.datasets.texts.verses import Translations, VersePairs

__all__ = ["BytePairs", "Characters", "Mails", "Passage", "Squad", "Translations", "VersePairs"]
