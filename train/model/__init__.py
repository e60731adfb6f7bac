"""The networks, their distribution over ranks, and their cost in closed form."""
