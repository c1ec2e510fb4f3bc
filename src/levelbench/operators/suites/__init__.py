"""Problem suites by name, and problems from command line words: what ``levelbench operator`` measures.

A problem is data (a node, and how its inputs are generated), so that a record holds all of it and another process can
recreate it even years later.
"""
