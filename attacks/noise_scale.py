"""Whether the noise that was drawn is as large as the noise that is claimed."""

import numpy as np

from bench import Column, Diagnostic, ThreatModel, attack


@attack("noise_scale")
class NoiseScale(Diagnostic):
    """Compares the noise in the organiser's vault with the scale that the release states for it: mean squared noise
    over its variance, per released clip. 1 is right, .5 is noise too small by the root of 2; an interval that leaves
    out 1 says that the harness does not draw what it prices. Gaussian and discrete Laplace branches; a label behind
    randomised response has no scale. It attacks nobody and never ranks. `veilbench audit` tests the same on many more
    releases. Source: variance of the discrete Laplace law, Canonne, Kamath and Steinke 2020.
    """

    threat = ThreatModel(knows="the organiser's vault: the noise itself and the scales that were stated",
                         reads="vault", trained_on="nothing", decoding="assembled")
    columns = (Column(id="noise_ratio", unit="1", better="none", low=0, high=1e6,
                      title="Variance of the noise drawn over that claimed", source="ours"),)

    def measure(self, branches):
        ratios = [b.residual**2 / _variance(b.noise)[:, None] for b in branches.values()
                  if b.noise.law in ("gaussian", "discrete_laplace")]
        return {"noise_ratio": float(np.mean([r.mean() for r in ratios])) if ratios else float("nan")}


def _variance(noise):
    """(T,) variance of each step's noise."""
    if noise.law == "gaussian":
        return noise.scale**2
    q = np.exp(-1 / noise.scale)  # discrete Laplace of scale b: P(x) ~ q^|x|
    return 2 * q / (1 - q) ** 2
