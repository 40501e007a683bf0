"""The loop: freeze, train, evaluate, canary, promote."""
