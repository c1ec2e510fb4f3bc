"""What ``levelbench operator`` is made of besides its options: its progress and its JSON."""
