"""What the words of ``levelbench board`` do, one module a word, and what they share."""
