"""Offline text-to-speech at full GPU speed: a corpus in, audio shards and an RTF report out."""

__version__ = "0.1.0"
