"""The rules under which entries are compared, as data: one TOML file a version, never a constant in code."""
