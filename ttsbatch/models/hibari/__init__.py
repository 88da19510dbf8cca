"""The embedded default: English, one voice, no download, no GPU.

A family of the outer kind: one forward pass per sentence, so it is a `Speaker` of its own and
needs nothing of the slot engine. Source of model and phonemes: the package hibari-tts 0.2.
"""
