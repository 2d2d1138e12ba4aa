"""TADP: two frozen codes of every frame, adaptive noise, and a decoder that reads noisy codes only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from bench import CLIP_FRAMES, Branch, FullClaim, Plan, PrivateMethod, method
from bench.privacy.accounting import floors
from methods.tadp import frozen
from methods.tadp.quantize import Rescale, SoftQuantizer
from methods.tadp.scale import ScalePredictor
from methods.tadp.sizes import BRANCHES, size_of
from methods.tadp.temporal import Contextualizer
from methods.tadp.training import Trainer, medians, read, thresholds

DELTA = 1e-5


@method("tadp")
class TADP(PrivateMethod):
    """Two frozen encoders describe every frame by an identity and an expression feature. Each is clipped to the 95th
    percentile of calibration people, and the harness adds Gaussian noise. A small recurrent network may raise its
    scale from what was already released, never below a floor that prices the whole 16-frame clip at an exact epsilon
    of 8 at delta 1e-5, .3 of the budget on identity and .7 on expression. The noisy features are mixed from a public
    codebook, put in context by a Transformer inside the clip and a memory over clips, and decoded by a frozen decoder.
    Expression labels train the decoder's side; identity labels only count the calibration people. Small networks of
    the same build stand in for ArcFace, the AffectNet encoder and the SDXL decoder (variant `paper`); the small encoder
    of expressions also sees the other frames of the clip, which is the protected unit. Tension: this
    noise limits expression exactly as it limits identity, and at the paper's quoted noise-to-signal ratios no reader
    could name the expression of a video in more than about 3 to 4 of 10 cases, where the paper reports over 8; what
    the noise of a measured row allows stands on its page. Source: TADP, dual-branch temporally adaptive differential
    privacy for expression-aware video anonymization.
    """

    fits = True
    needs = frozenset({"expression", "identity"})
    assets = ("identity_code_method", "expression_code_method", "expression_frame_method", "autoencoder_method")
    memory_between_clips = True
    probed = "expr"
    variants = {
        "a1": {"noised": "id"},
        "a2": {"share_id": 0.5},
        "a3": {"quantized_rows": False},
        "a4": {"temperature": 0.1},
        "a5": {"temperature": 1.0},
        "a6": {"adaptive": False},
        "a7": {"transformer": False},
        "a8": {"memory": False},
        "t8": {"frames": 8},
        "t32": {"frames": 32},
        "eps2": {"epsilon": 2.0},
        "eps4": {"epsilon": 4.0},
        "eps16": {"epsilon": 16.0},
        "eps8-rho10": {"share_id": 0.1},
        "eps8-rho50": {"share_id": 0.5},
        "no_noise": {"noised": "none"},
        "mironov": {"conversion": "mironov"},
        "paper": {"size": "paper"},
    }

    def __init__(self, *, epsilon: float = 8.0, share_id: float = 0.3, conversion: str = "exact", noised: str = "both",
                 temperature: float = 0.5, quantized_rows: bool = True, adaptive: bool = True, transformer: bool = True,
                 memory: bool = True, frames: int = CLIP_FRAMES, size: str = "tiny"):
        self.frames = frames  # T, the accounting unit; padded frames are counted
        self.size, self.published = size_of(size), size == "paper"
        share = {"id": share_id, "expr": 1 - share_id}
        self.floors = floors(epsilon, DELTA, clip_norm=dict.fromkeys(BRANCHES, 1.0), share=share, frames=frames,
                             conversion=conversion)
        noisy = {"both": BRANCHES, "id": ("id",), "none": ()}[noised]
        self.branches = tuple(
            Branch(name, dim=self.size.dim, norm="l2", clip=1.0, noise="gaussian" if name in noisy else None,
                   floor=self.floors[name] if name in noisy else None) for name in BRANCHES)
        self.terms = FullClaim(unit="clip", delta=DELTA, frames=frames)
        self.floors = {name: self.floors[name] for name in noisy}
        self.temperature, self.quantized_rows = temperature, quantized_rows
        self.inspects = ("quantized", "context",
                         *((f"assignment:{b}" for b in BRANCHES) if quantized_rows else ()))
        self.adaptive, self.transformer, self.memory = adaptive and bool(noisy), transformer, memory
        self._state: dict[str, np.ndarray] = {}
        self._encoders: frozen.Encoders | None = None
        self._fitting = False  # then `plan` speaks tensors, with gradients
        self.clip: dict[str, float] = {}

    # ---- fit -------------------------------------------------------------------------------------------------------

    def fit(self, data, assets, ctx) -> None:
        """Thresholds from calibration people, everything trainable from training people, by simulated releases."""
        self._state, self._fitting = {}, True
        arrays = frozen.from_published() if self.published else frozen.from_assets(assets)
        encoders = frozen.Encoders(arrays, self.size)
        self.clip = thresholds(data.calibration, encoders, self.frames)
        sources = [read(item, encoders, self.frames) for item in data.train]
        ctx.report(f"features of {len(sources)} videos; C_id {self.clip['id']:.3f}, C_expr {self.clip['expr']:.3f}")
        norms = medians(sources, self.clip)
        arrays |= {f"clip.{b}": np.float64([self.clip[b]]) for b in BRANCHES}
        arrays |= {f"median.{b}": np.float64([norms[b]]) for b in BRANCHES}
        arrays["temperature"] = np.float64([self.temperature])
        if not self.quantized_rows:
            arrays = {k: v for k, v in arrays.items() if not k.startswith("codebook:")}
        torch.manual_seed(ctx.torch_seed("weights"))
        self._build(arrays)
        recogniser = frozen.recogniser(assets, arrays, self.published)
        public = {"canvas_px": sources[0].frames.shape[1], "profile": ctx.profile}
        Trainer(self, sources, recogniser, ctx.simulate, public).run(ctx.rng("batches"), ctx.report)
        self._modules().eval()
        self._state = arrays | {f"trained.{k}": v.numpy() for k, v in self._modules().state_dict().items()}
        self._state["digest"] = frozen.digest(self._state)
        self._fitting = False

    def trained(self) -> list[nn.Module]:
        """The parts that training changes."""
        return [self.contextualizer, *([self.scale] if self.scale is not None else [])]

    def _modules(self) -> nn.ModuleDict:
        return nn.ModuleDict({"context": self.contextualizer} | ({"scale": self.scale} if self.scale else {}))

    def _build(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Every part after the encoders, with fresh weights where training will set them."""
        self.clip = {b: float(arrays[f"clip.{b}"][0]) for b in BRANCHES}
        self.quantizers: dict[str, nn.Module] = {}
        for b in BRANCHES:
            rescale = self.clip[b] / float(arrays[f"median.{b}"][0])  # the harness's rows are in units of C_b
            self.quantizers[b] = SoftQuantizer(
                torch.from_numpy(np.array(arrays[f"codebook:{b}"])) / self.clip[b], rescale,
                self.temperature) if self.quantized_rows else Rescale(rescale)
        self.contextualizer = Contextualizer(self.size, transformer=self.transformer, memory=self.memory)
        self.scale = ScalePredictor(self.size.dim, self.floors) if self.adaptive else None
        self.decoder = frozen.Decoder(arrays)

    # ---- state -----------------------------------------------------------------------------------------------------

    def state(self) -> Mapping[str, np.ndarray]:
        return self._state

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Only keeps the arrays: the process that encodes builds the encoders, the one that renders the rest."""
        self._state, self._encoders = dict(state), None
        frozen.check_digest(self._state)
        self.clip = {b: float(state[f"clip.{b}"][0]) for b in BRANCHES}
        self.contextualizer = None  # type: ignore[assignment]

    def _ready(self) -> None:
        if self.contextualizer is None:
            self._build(self._state)
            modules = self._modules()
            modules.load_state_dict(frozen.part(self._state, "trained."))
            modules.eval().requires_grad_(False)

    # ---- encode, plan, render --------------------------------------------------------------------------------------

    def encode(self, atom: np.ndarray) -> Mapping[str, np.ndarray]:
        self._encoders = self._encoders or frozen.Encoders(self._state, self.size)
        return {b: rows / self.clip[b] for b, rows in self._encoders(atom).items()}  # (16, dim), in units of C_b

    def plan(self, t: int, past, memory, public) -> Plan:
        """Scales of the next step from the rows released so far; arrays in, arrays out, tensors under `simulate`."""
        if not self.adaptive:
            return Plan()
        if self._fitting:
            return self._planned(past, memory)
        self._ready()
        with torch.no_grad():
            plan = self._planned({k: torch.from_numpy(np.array(v, np.float32)) for k, v in past.items()},
                                 {k: torch.from_numpy(np.array(v)) for k, v in memory.items()})
        return Plan({k: v.numpy().astype(np.float64) for k, v in plan.scale.items()},
                    memory={k: v.numpy() for k, v in plan.memory.items()})

    def _planned(self, past: Mapping[str, torch.Tensor], memory: Mapping[str, torch.Tensor]) -> Plan:
        rows = torch.cat([past[b] for b in BRANCHES], dim=1) if past else None  # (B, 2 dim)
        scale, h = self.scale(rows, memory.get("h"))  # type: ignore[misc]
        return Plan({b: s if past else s[0] for b, s in scale.items()}, memory={"h": h})

    def quantized(self, released: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Released rows {branch: (..., dim)} -> mixtures of codebook entries, in rescaled coordinates."""
        return {b: self.quantizers[b](released[b].float()) for b in BRANCHES}

    @torch.no_grad()
    def render(self, transcripts: Sequence[Mapping[str, np.ndarray]], public, decoding) -> np.ndarray:
        """All clips of a source share one memory; an isolated clip starts from the constants."""
        context = self._context(transcripts)
        mixed = self.contextualizer.remembered(context).flatten(0, 2)  # (T clips, width)
        frames = torch.cat([self.decoder(self.contextualizer.latents(m)) for m in mixed.split(self.frames)])
        return (frames * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()

    def _context(self, transcripts: Sequence[Mapping[str, np.ndarray]]) -> torch.Tensor:
        """(1, clips, 16, width) of the released values of one source."""
        self._ready()
        return self.contextualizer.context(self.quantized(_stacked(transcripts)))

    @torch.no_grad()
    def inspect(self, transcripts: Sequence[Mapping[str, np.ndarray]], public: Mapping[str, Any]) -> dict[str, list]:
        """What becomes of released values inside, one array a clip: quantized expression rows (16, dim), context
        (16, width), weights of codebook entries (16, entries). Reads released values only.
        """
        self._ready()
        rows = _stacked(transcripts)
        quantized = self.quantized(rows)
        found = {"quantized": quantized["expr"][0], "context": self.contextualizer.context(quantized)[0]}
        for b in BRANCHES:
            if isinstance(self.quantizers[b], SoftQuantizer):
                found[f"assignment:{b}"] = self.quantizers[b].assignment(rows[b].float())[0]  # type: ignore[operator]
        return {k: [clip.numpy() for clip in v] for k, v in found.items()}


def _stacked(transcripts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, torch.Tensor]:
    """{branch: (1, clips, 16, dim)}."""
    return {b: torch.from_numpy(np.stack([np.asarray(t[b], np.float32) for t in transcripts]))[None] for b in BRANCHES}
