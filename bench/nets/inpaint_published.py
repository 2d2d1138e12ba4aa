"""A published inpainting generator as TorchScript, behind the same call as bench.nets.inpaint.Inpainter."""

from __future__ import annotations

import hashlib
import io
import warnings
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from bench.errors import DataError
from bench.nets.given import brought
from bench.nets.inpaint import InpaintSize

SIDE_PX = 256  # DeepPrivacy2's face generator
LATENT = 512


class Published:
    """TorchScript (picture in -1 .. 1 without the face, mask of known pixels, z (N, 512)) -> picture in -1 .. 1.

    A file is code: it runs only when its SHA-256 is the one that was asked for. `file`: its bytes, uint8.
    """

    size = InpaintSize((), LATENT)

    def __init__(self, file: np.ndarray, sha256: str):
        self.file = file
        found = hashlib.sha256(file.tobytes()).hexdigest()
        if found != sha256.lower():
            raise DataError(f"The published generator has SHA-256 {found[:16]}…, not {sha256[:16].lower()}….",
                            "Another network would be measured under the same name.",
                            "Load the state with the digest that it was fitted with.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls TorchScript deprecated
            self.network: Any = torch.jit.load(io.BytesIO(file.tobytes()), map_location="cpu").eval()

    @classmethod
    def brought(cls, path: str, sha256: str) -> Published:
        """Raises WeightsMissing without the file, DataError for another one."""
        return cls(np.fromfile(brought("deepprivacy2_face", path, sha256), np.uint8), sha256)

    def eval(self) -> Published:
        return self

    def __call__(self, pictures: torch.Tensor, masks: torch.Tensor, latent: torch.Tensor) -> torch.Tensor:
        """As Inpainter: the masked pixels are gone before the network is called, and it is read at 256 px."""
        known = (2 * pictures - 1) * (1 - masks)
        large = F.interpolate(known, (SIDE_PX, SIDE_PX), mode="bilinear", align_corners=False)
        holes = F.interpolate(masks, (SIDE_PX, SIDE_PX), mode="nearest")
        made = self.network(large * (1 - holes), 1 - holes, latent)
        if tuple(made.shape) != (len(pictures), 3, SIDE_PX, SIDE_PX):
            raise DataError(f"The published generator gives {tuple(made.shape)} for {SIDE_PX} px.",
                            "A picture of the same size is pasted back.", "Export the face generator of 256 px.")
        made = F.interpolate((made + 1) / 2, pictures.shape[2:], mode="bilinear", align_corners=False, antialias=True)
        return pictures * (1 - masks) + made * masks
