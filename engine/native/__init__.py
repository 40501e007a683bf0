"""The CPU backend in C++: one call computes a whole step. Knows no scheduling and no sampling.

build.py     the sources under csrc/ -> a shared library, compiled once and cached
library.py   its C interface, declared for ctypes
spec.py      what a model is -> the library's struct of it
levels.py    the instruction set that its kernels use
weights.py   a model folder -> packed weights
model.py     a step's sequences -> logits
"""
