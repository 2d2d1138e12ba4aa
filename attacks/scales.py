"""scales: what was clipped, how large the noise was, and how it compares with the signal."""

import numpy as np

from bench import Column, Diagnostic, ThreatModel, attack


@attack("scales")
class Scales(Diagnostic):
    """Reads the organiser's vault. `scale_ratio`: the noise scale over the floor that the claim is priced by, mean over
    frames and branches; 1 for a static mechanism, and nothing above 1 earns credit. `clipping_rate`: frames whose
    vector was longer than the clip norm before clipping (l2 branches). `noise_to_signal`: norm of the noise over norm
    of the clipped vector, median over the frames of a clip; frames of zero norm are left out. It attacks nobody and
    never ranks; none of the three is an epsilon. Source: TADP tables 11 and 12.
    """

    threat = ThreatModel(knows="the organiser's vault: clipped values, norms before clipping, noise and scales",
                         reads="vault", trained_on="nothing", decoding="assembled")
    columns = (
        Column(id="scale_ratio", unit="1", better="none", low=0, high=1e6,
               title="Noise scale over its floor", source="TADP table 11"),
        Column(id="clipping_rate", unit="rate", better="none", low=0, high=1,
               title="Frames that were clipped", source="TADP 4.1"),
        Column(id="noise_to_signal", unit="1", better="none", low=0, high=1e9,
               title="Noise over signal, median frame", source="TADP table 12"),
    )

    def measure(self, branches):
        noisy = [b for b in branches.values() if b.noise.law in ("gaussian", "discrete_laplace")]
        return {"scale_ratio": _mean([b.noise.scale / b.floor for b in noisy]),
                "clipping_rate": _mean([_clipped(b.norm, b.clip_norm) for b in noisy if b.noise.law == "gaussian"]),
                "noise_to_signal": _mean([_ratio(b.residual, b.clipped) for b in noisy])}


def _mean(parts):
    values = [part[~np.isnan(part)].mean() for part in map(np.atleast_1d, parts) if (~np.isnan(part)).any()]
    return float(np.mean(values)) if values else float("nan")


def _clipped(norm, clip_norm):
    """(T,) 1 where a row was too long, NaN where encoding failed."""
    return np.where(np.isnan(norm), np.nan, (norm > clip_norm).astype(float))


def _ratio(noise, signal):
    """Median over frames of |noise| / |signal|, NaN where no frame has a signal."""
    length = np.linalg.norm(signal, axis=1)
    known = length > 0
    return float(np.median(np.linalg.norm(noise, axis=1)[known] / length[known])) if known.any() else float("nan")
