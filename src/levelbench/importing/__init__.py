"""Other tools' results as records: logged training runs (``runs``), and benchmarks of commands (``timings``)."""
