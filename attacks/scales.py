"""scales: what was clipped, how large the noise was, and how it compares with the signal."""

import numpy as np

from bench import Column, Diagnostic, ThreatModel, attack, column_key, told_apart

LAWS = ("gaussian", "discrete_laplace")


def _pooled(name, title, table):
    return Column(id=name, unit="1", better="none", low=0, high=1e12, role="diagnostic", statistic="jackknife",
                  title=title, source=f"TADP table {table}")


@attack("scales")
class Scales(Diagnostic):
    """Reads the organiser's vault. `scale_ratio`: the noise scale over the floor that the claim is priced by, mean over
    frames and branches; 1 for a static mechanism, and nothing above 1 earns credit. `clipping_rate`: frames whose
    vector was longer than the clip norm before clipping (l2 branches). `noise_to_signal`: norm of the noise over norm
    of the clipped vector, median over the frames of a clip; frames of zero norm are left out. The method's page has the
    same branch by branch, over all unpadded test frames: mean, deviation, least and largest noise scale; mean and
    deviation of the norms of clipped vectors and of the noise; median, 5th and 95th percentile of their ratio. It
    attacks nobody and never ranks; none of these is an epsilon. Source: TADP tables 11 and 12.
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

    per_branch = (
        _pooled("scale_mean", "Noise scale, mean", 11), _pooled("scale_std", "Noise scale, deviation", 11),
        _pooled("scale_min", "Noise scale, least", 11), _pooled("scale_max", "Noise scale, largest", 11),
        _pooled("signal_norm", "Norm of the clipped vector, mean", 12),
        _pooled("signal_norm_std", "Norm of the clipped vector, deviation", 12),
        _pooled("noise_norm", "Norm of the noise, mean", 12),
        _pooled("noise_norm_std", "Norm of the noise, deviation", 12),
        _pooled("ratio_median", "Noise over signal, median", 12),
        _pooled("ratio_p5", "Noise over signal, 5th percentile", 12),
        _pooled("ratio_p95", "Noise over signal, 95th percentile", 12),
        _pooled("floor", "Smallest noise scale that the claim allows", 1),
        _pooled("clipped_share", "Rows that were longer than the clip norm", 1),
        _pooled("loss_share", "Share of the Gaussian privacy loss", 1),
    )

    def columns_of(self, method):
        noisy = [name for name, law in method.branches.items() if law in LAWS]
        return self.columns + told_apart(self.per_branch, "branch", noisy)

    def values(self, branches):
        found = {}
        for name, branch in branches.items():
            if branch.noise.law in LAWS:
                found |= {f"scale:{name}": branch.noise.scale, f"signal:{name}": np.linalg.norm(branch.clipped, axis=1),
                          f"noise:{name}": np.linalg.norm(branch.residual, axis=1),
                          f"floor:{name}": np.full(len(branch.clipped), branch.floor),
                          f"over:{name}": _clipped(branch.norm, branch.clip_norm),
                          f"loss:{name}": np.full(len(branch.clipped), (branch.clip_norm / branch.floor) ** 2
                                                  if branch.noise.law == "gaussian" else np.nan)}
        return found

    def pooled(self, values, people):
        found, every = {}, np.nansum([v.mean() for key, v in values.items() if key.startswith("loss:")])
        for key in [k for k in values if k.startswith("scale:")]:
            name = key.removeprefix("scale:")
            scale, signal, noise = (values[f"{what}:{name}"] for what in ("scale", "signal", "noise"))
            ratio = noise[signal > 0] / signal[signal > 0]
            low, middle, high = np.percentile(ratio, (5, 50, 95)) if len(ratio) else (np.nan,) * 3
            numbers = (scale.mean(), scale.std(), scale.min(), scale.max(), signal.mean(), signal.std(), noise.mean(),
                       noise.std(), middle, low, high, values[f"floor:{name}"].mean(),
                       _mean([values[f"over:{name}"]]), values[f"loss:{name}"].mean() / every if every else np.nan)
            found |= {column_key(column.id, {"branch": name}): number
                      for column, number in zip(self.per_branch, numbers, strict=True)}
        return found

    def measure(self, branches):
        noisy = [b for b in branches.values() if b.noise.law in LAWS]
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
