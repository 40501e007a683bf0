"""From the text of a model to what it means: content, reasoning and calls of functions."""
