"""Throughput by part, and of `synth` itself: what `ttsbatch bench` times."""
