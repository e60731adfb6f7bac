"""Initial, published and exported weights."""
