"""The cells of a study and the effects of its factors."""
