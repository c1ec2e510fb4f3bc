"""Tasks: one readable file each, with what is fixed and the reference recipes."""
