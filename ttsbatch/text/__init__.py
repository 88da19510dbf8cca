"""Text: what is spoken of a row, and how long it should take. Pure functions."""
