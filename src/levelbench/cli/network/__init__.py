"""What ``levelbench network`` is made of besides its options: its words, its arms, its progress, what it writes."""
