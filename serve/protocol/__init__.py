"""The HTTP bodies: what clients may send, checked strictly, and the shapes they are answered with."""
