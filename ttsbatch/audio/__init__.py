"""Samples on the host: encoding and joining."""
