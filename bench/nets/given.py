"""Published weights that somebody has brought: read by name, path and SHA-256. Nothing is ever downloaded."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors.torch import load_file

from bench import weights
from bench.errors import DataError, WeightsMissing


def given(name: str, what: str) -> dict[str, torch.Tensor]:
    """Tensors of the published network `name`, verified. `what` says which file that is, for the message.

    Raises WeightsMissing when nobody brought it, DataError when its file is gone or has another digest.
    """
    if name not in weights.shipped():
        raise WeightsMissing(name, f"Save {what} as {weights.FOLDER / name}.safetensors and put its SHA-256 into "
                                   f"weights.json beside it, or use a variant that needs no such weights.")
    return load_file(weights.verified(name))


def brought(name: str, path: str | Path, sha256: str) -> Path:
    """A file that a suite's budget names with its digest, verified; nothing of it was read before that.

    Raises WeightsMissing without a path, a digest or a file, DataError when the file has another digest.
    """
    if not path or not sha256 or not Path(path).is_file():
        why = f"There is no file {path}. " if path and sha256 else ""
        raise WeightsMissing(name, f"{why}Name the published file and its SHA-256 in the suite's budget.")
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256.lower():
        raise DataError(f"The weights {Path(path).name} have SHA-256 {found[:16]}…, not {sha256[:16].lower()}….",
                        "Another network would be measured under the same name.",
                        "Give the file and the SHA-256 that its publisher states.")
    return Path(path)
