"""One command that measures a GPU: `python -m benchmarks.gpu` (`make gpu`)."""
