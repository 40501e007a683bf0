"""Batches of requests: a file of lines, each answered as a request of its own, behind all interactive ones.

    Desk          takes batches that nobody works on, under a lease, and holds the leases
    BatchRun      one batch: check the lines, have them answered, put the answers together
    Places        how many lines are under way: few while somebody waits for an answer
    Answerer      one line: the way of an HTTP request without its socket, again where it was turned away
    PartWriter    answers to the object store in parts, each counted once in the database
    Cleaning      removes what files and batches have left behind

Any gateway goes on with a batch whose gateway died: what is in the parts is done, the other lines run again.
"""
