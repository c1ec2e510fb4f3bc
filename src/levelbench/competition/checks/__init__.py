"""The rules that an entry is held to, in groups; each is a function of an entry and yields findings."""
