"""Plans, resumes and interleaves runs, and executes each in a process of its own."""
