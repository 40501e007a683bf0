"""The loop: freeze, train, evaluate, canary, promote.

    dataset.freeze -> training.train -> evaluation.evaluate -> canary.start -> promotion.promote

Each is a function over the database and returns what it left there. Training runs in a process of its own
(pipeline.trainer), so that nothing here ever imports torch. Nothing here knows HTTP status codes, settings or
the command line.
"""
