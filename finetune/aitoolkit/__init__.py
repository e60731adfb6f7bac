"""Fine-tuning by ai-toolkit, unmodified, as a process that this package drives."""
