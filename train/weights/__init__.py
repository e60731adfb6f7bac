"""The weights a run starts from, published weights in our format, and exported weights."""
