"""Tasks: one readable file each, with what is fixed and its reference recipes."""
