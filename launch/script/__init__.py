"""Submit a batch script of the user's as it is, or with varied values."""
