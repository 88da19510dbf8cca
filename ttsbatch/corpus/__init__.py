"""Corpora: files of rows, read as a stream, each row checked before any model is loaded."""
