"""What ended a run, or a job: the root of it, the lines that show it, and what to type next."""
