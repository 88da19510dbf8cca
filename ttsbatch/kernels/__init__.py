"""Fused GPU operations; each has its plain torch equal in `kernels/reference`.

Import an operation from its own module: `from ttsbatch.kernels.rms_norm import rms_norm`.
"""
