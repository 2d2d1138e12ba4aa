"""latent_llr: the strongest reader of a transcript, against whom a ceiling is held."""

import numpy as np

from bench import Column, Compare, ThreatModel, attack


@attack("latent_llr")
class LatentLLR(Compare):
    """The likelihood-ratio attacker in the worst case: it knows the clipped, un-noised values of the true probe clip
    and of one clip with the same label of every other test person, reads the noisy values that an enforced method
    publishes beside its video, and names the person whose values make them likeliest. It trains nothing. A trial is
    one 16-frame clip. No attacker with less knowledge can be expected to do better, so the distance to the ceiling
    shows how slack the ceiling is. Lower is more private; chance is 1 / people. Source: Neyman and Pearson's lemma;
    the protocol is ours.
    """

    threat = ThreatModel(
        knows="the un-noised values of the true clip and of one same-label clip of every other test person",
        reads="transcript", trained_on="nothing", decoding="isolated")
    columns = (Column(id="top1", unit="rate", better="none", low=0, high=1, role="descriptive",
                      title="Identified from the noisy values (worst case)", source="ours"),)

    def score(self, released, candidates, noise):
        total = 0.0
        for name, values in released.items():
            difference = values[None] - candidates[name]  # (P, T, dim)
            law, scale = noise[name].law, noise[name].scale[:, None]  # (T, 1)
            if law == "gaussian":
                total = total - (difference**2 / (2 * scale**2)).sum((1, 2))
            elif law == "discrete_laplace":
                total = total - (np.abs(difference) / scale).sum((1, 2))
            elif law == "randomized_response":
                total = total + (scale * (difference == 0)).sum((1, 2))
            else:  # in clear: only an exact match is possible
                total = total - 1e9 * (difference != 0).sum((1, 2))
        return total  # (P,)
