"""What ``levelbench infer`` is made of besides its options: its words, its task, its progress, its JSON."""
