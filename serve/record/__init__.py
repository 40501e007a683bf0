"""The request record: a local spool that outlives its process, and the thread that takes it to the database.

spool.py is the file format and the writer, reader.py reads it back, recorder.py inserts what was read.
"""

from serve.record.recorder import Recorder, RecorderState
from serve.record.spool import SpoolWriter

__all__ = ["Recorder", "RecorderState", "SpoolWriter"]
