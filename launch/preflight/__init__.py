"""What would go wrong with a run, found before it waits in a queue."""
