"""One command that measures a GPU in pieces: `python -m benchmarks.gpu` (`make gpu`)."""
