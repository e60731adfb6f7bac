"""What is known to go wrong with batch scripts: a rule for each mistake, none of them run."""
