"""Text logs."""
