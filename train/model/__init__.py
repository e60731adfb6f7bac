"""The networks, and what is known of them in closed form."""
