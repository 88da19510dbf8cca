"""Counts in messages: a number and what is counted."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 row`, `2 rows`, `1,000 rows`.

    Args:
        number: of the things.
        noun: one of them, in as many words as needed, the last of which takes an s.
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
