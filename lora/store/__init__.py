"""Where bytes live: adapters by content digest, plain objects by key, in a folder or in an S3 bucket.

A store holds complete adapters only. Whoever reads one checks its bytes against the digest, so a copy that
rotted is found before it serves. It knows neither the registry nor the base models.
"""

from lora.store.file_store import FileStore
from lora.store.local_copy import local_folder
from lora.store.objects import ObjectStore
from lora.store.opening import check_store, open_objects, open_store
from lora.store.options import S3Options
from lora.store.protocol import AdapterStore

__all__ = [
    "AdapterStore",
    "FileStore",
    "ObjectStore",
    "S3Options",
    "check_store",
    "local_folder",
    "open_objects",
    "open_store",
]
