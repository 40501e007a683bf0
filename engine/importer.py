"""GGUF file to model folder: plain safetensors, config, tokenizer and chat template in Hugging Face layout.

Quantized tensors are expanded, so the folder can be served and trained alike. What the importer does
not know, it refuses: an architecture, a RoPE scaling, a tokenizer, a pre-tokenizer, a figure or a tensor
it has no row for. The folder appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from engine.config import Dtype
from engine.dtypes import DTYPES
from engine.errors import UnsupportedModel
from engine.gguf_families import GgufFamily, family_of
from engine.gguf_meta import GgufMeta
from engine.gguf_tensors import expanded, size
from engine.gguf_tokenizer import GgufTokenizer, read_tokenizer
from engine.modelspec import read_spec
from engine.shards import ShardWriter

Progress = Callable[[int, int], None]
"""Bytes of the file's tensors done, and all of them."""


def import_gguf(
    source: Path, folder: Path, dtype: Dtype = "bfloat16", progress: Progress = lambda done, total: None
) -> Path:
    """Convert `source` into `folder` and return it; a folder that exists is left as it is.

    Raises UnsupportedModel naming what was met, OSError where files cannot be read or written.
    """
    if folder.exists():
        return folder
    meta = GgufMeta(source)
    family = family_of(meta)
    config = {**family.config(meta), "dtype": dtype}
    meta.expect_all_read()
    tokenizer = _tokenizer(meta)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write_json(partial / "config.json", config)
        _write_json(
            partial / "generation_config.json",
            {"bos_token_id": tokenizer.bos_id, "eos_token_id": list(tokenizer.end_ids)},
        )
        read_spec(partial)  # refuses what the engine would not serve, before the long part
        tokenizer.write(partial)
        _write_tensors(partial, meta, family, DTYPES[dtype], progress)
        _publish(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _tokenizer(meta: GgufMeta) -> GgufTokenizer:
    try:
        return read_tokenizer(meta.values)
    except KeyError as error:
        raise UnsupportedModel(f"{meta.source} lacks the metadata {error.args[0]}") from error


def _write_tensors(
    folder: Path, meta: GgufMeta, family: GgufFamily, dtype: torch.dtype, progress: Progress
) -> None:
    writer, done, total = ShardWriter(folder), 0, size(meta)
    for name, tensor, read in expanded(meta, family, dtype):
        writer.add(name, tensor)
        done += int(read)
        progress(done, total)
    writer.close()


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _publish(partial: Path, folder: Path) -> None:
    """Rename into place once all bytes are on disk; where another process was first, its folder stays."""
    for path in (*partial.iterdir(), partial):
        path.chmod(0o755 if path.is_dir() else 0o644)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    try:
        partial.rename(folder)
    except OSError:
        if not folder.exists():
            raise
