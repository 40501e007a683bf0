"""The OpenAI objects that clients read: chat and text completions, whole and in chunks."""
