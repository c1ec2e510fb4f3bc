"""What several frameworks share: rules in NumPy, and operators over an array namespace."""
