"""Published InternVideo2 checkpoints: checked by SHA-256, fitted to 16 frames, refused when anything is missing.

Read are the encoders that OpenGVLab publishes, pre-trained, distilled or fine-tuned (patch 14, 224 px, S, B or 1B), as
safetensors or as a pickle of nothing but tensors. Only the classifier, and the norm before it, may be absent.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.nn import functional as F

from bench.errors import DataError
from bench.nets.clip_vit import ClipViT
from bench.nets.given import brought

KEYS = ("model", "module")  # under one of which a training checkpoint keeps its network
PREFIXES = ("backbone.", "encoder.")
NEW = ("head.weight", "head.bias")  # one classifier a study: never taken over
OPTIONAL = ("fc_norm.weight", "fc_norm.bias")  # encoders that were never fine-tuned have none


def load_published(path: str | Path, sha256: str, model: ClipViT) -> list[str]:
    """Load a checkpoint into `model` in place; returns the names of tensors that keep their random start.

    A temporal position embedding of another length (8 frames) is resized linearly. Tensors that the encoder does not
    have, such as a teacher's decoders, are passed over. Raises DataError that says what is missing or does not fit.
    """
    state = _unwrapped(_read(brought("internvideo2", path, sha256)))
    if "pos_embed" in state:
        state["pos_embed"] = _resized(state["pos_embed"], model, Path(path))
    own = model.state_dict()
    absent = [k for k in own if k not in state and k not in NEW + OPTIONAL]
    wrong = [f"{k} is {tuple(state[k].shape)}, not {tuple(v.shape)}" for k, v in own.items()
             if k in state and k not in NEW and state[k].shape != v.shape]
    if absent or wrong:
        problems = _some([f"{k} is missing" for k in absent] + wrong)
        raise DataError(f"The weights {Path(path).name} do not fit: {problems}.",
                        "A network that is partly random would be measured under a published name.",
                        "Give the checkpoint of this size (small, base or 1B) and of patch 14, or set another `size`.")
    taken = {k: v for k, v in state.items() if k in own and k not in NEW}
    model.load_state_dict(taken, strict=False)
    return sorted(set(own) - set(taken))


def _read(path: Path) -> Any:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise DataError(f"The weights {path.name} cannot be read: {str(error).splitlines()[0]}.",
                        "Only tensors are read; a pickle that holds anything else could run code.",
                        "Save the state dictionary alone, best as .safetensors.") from None


def _unwrapped(found: Any) -> dict[str, torch.Tensor]:
    """The network's tensors by name, without the wrapping that training scripts add; in float32."""
    for key in KEYS:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
            break
    state = {}
    for name, value in found.items() if isinstance(found, Mapping) else ():
        prefix = next((p for p in PREFIXES if name.startswith(p)), "")
        if isinstance(value, torch.Tensor):
            state[name.removeprefix(prefix)] = value.float() if value.is_floating_point() else value
    return state


def _resized(positions: torch.Tensor, model: ClipViT, path: Path) -> torch.Tensor:
    """(1, 1 + t grid^2, C) -> (1, 1 + T grid^2, C), linear in time; the class token keeps its own."""
    size = model.size
    frames, rest = divmod(positions.shape[1] - 1, size.grid**2)
    if rest or not frames:
        raise DataError(f"The weights {path.name} have {positions.shape[1]} positions, which is not one class token "
                        f"and {size.grid} x {size.grid} patches a frame.", "They are of another picture or patch size.",
                        f"Give a checkpoint for {size.side_px} px and patch {size.patch_px}.")
    if frames == size.frames:
        return positions
    patches = positions[0, 1:].unflatten(0, (frames, -1)).permute(1, 2, 0)  # (grid^2, C, t)
    patches = F.interpolate(patches, size=size.frames, mode="linear", align_corners=False)
    return torch.cat([positions[:, :1], patches.permute(2, 0, 1).flatten(0, 1)[None]], dim=1)


def _some(problems: list[str], shown: int = 5) -> str:
    return "; ".join(problems[:shown]) + (f"; and {len(problems) - shown} more" if len(problems) > shown else "")
