"""What ``levelbench check`` does, one module a kind of thing that can be checked."""
