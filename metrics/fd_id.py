"""FD in identity space: how far a release moves the clips of all people together, as a Fréchet distance."""

from bench import Column, metric
from bench.frechet import check_equal_size, frechet_of
from bench.nets.identity_space import IdentitySpace


@metric("fd_id")
class FDIdentity(IdentitySpace):
    """Compares original and released clips of the same moments as two clouds of identity embeddings: the Fréchet
    distance of the Gaussians with their means and covariances (N - 1). One embedding a clip: the mean of the unit
    embeddings of its frames, brought back to unit norm, so the distance lies in 0 .. 4. `@synth`: a ResNet
    trained on made public people, a stand-in; `@arcface`: ArcFace with its published weights; `@faceid`: dlib's face
    network from an optional package. Descriptive: far from the originals is neither more private nor less useful by
    itself. Biased upward when clips are few: compare values of one evaluator and one number of clips only, beside the
    distance of two halves of the original people. `fd_id_pr` is a recovered release against the release that it was
    recovered from: small means that the recovery hardly moved it.
    Source: TADP 4.2.2; Heusel et al. 2017; unit norm, N - 1 and one row a clip are ours.
    """

    columns = (Column(id="fd_id", unit="1", better="none", low=0, high=4, statistic="jackknife",
                      title="Shift in identity space (Fréchet)", source="TADP 4.2.2; Heusel et al. 2017"),)
    recovered_columns = (Column(id="fd_id_pr", unit="1", better="none", low=0, high=4, statistic="jackknife",
                                title="Recovered against released, identity space (Fréchet)", source="TADP 4.2.2"),)
    variants = {"synth": {}, "arcface": {"network": "arcface"}, "faceid": {"network": "faceid"}}
    headline = "synth"

    def distance(self, first, second, originals):
        check_equal_size(first, second)
        return frechet_of(first, second)
