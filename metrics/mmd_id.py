"""MMD in identity space: how little original and released clips of all people look like one cloud."""

from bench import Column, metric
from bench.frechet import gaussian, median_bandwidth, mmd2_unbiased
from bench.nets.identity_space import IdentitySpace


@metric("mmd_id")
class MMDIdentity(IdentitySpace):
    """Compares original and released clips as two clouds of identity embeddings: the unbiased squared maximum mean
    discrepancy with a Gaussian kernel, whose bandwidth is the median distance of two original clips, the same for
    every method. Independent clips of one law give 0 on average, unchanged ones just below 0; at most 2. One embedding
    a clip: the mean of the unit embeddings of its frames, brought back to unit norm. `@synth`: a ResNet trained on made
    public people, a stand-in; `@arcface`: ArcFace with its published weights; `@faceid`: dlib's face network from an
    optional package. Descriptive: far from the originals is neither more private nor less useful by itself. Unlike
    the Fréchet distance it is not biased by the number of clips. `mmd_id_pr` is a recovered release against the
    release that it was recovered from. Source: TADP 4.2.2; Gretton et al. 2012; kernel and bandwidth are ours.
    """

    columns = (Column(id="mmd_id", unit="1", better="none", low=-2, high=2, statistic="jackknife",
                      title="Shift in identity space (MMD²)", source="TADP 4.2.2; Gretton et al. 2012"),)
    recovered_columns = (Column(id="mmd_id_pr", unit="1", better="none", low=-2, high=2, statistic="jackknife",
                                title="Recovered against released, identity space (MMD²)", source="TADP 4.2.2"),)
    embeds_like = "fd_id"
    variants = {"synth": {}, "arcface": {"network": "arcface"}, "faceid": {"network": "faceid"}}
    headline = "synth"

    def distance(self, first, second, originals):
        return mmd2_unbiased(first, second, gaussian(median_bandwidth(originals)))
