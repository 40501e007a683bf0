"""Paged-KV inference engine with LoRA slots: a library of its own that knows no HTTP, no SQL and no Ray."""
