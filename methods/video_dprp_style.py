"""Random projection of a clip and its covariance, both with Gaussian noise; the clip is rebuilt from the two."""

from __future__ import annotations

import cv2
import numpy as np

from bench import CLIP_FRAMES, ConfigError, FullClaim, Video, method
from bench.nets.crop_faces import faces_only
from bench.privacy.accounting import floors
from bench.privacy.claims import BranchClaim
from bench.privacy.declared import DeclaredMethod, Event

DELTA = 1e-5
PROJECTION, COVARIANCE = "projection", "covariance"
SMALLEST = 0.05  # singular values of V^T R below this share of the largest are not inverted
COLOURS = 3


@method("video_dprp_style")
class VideoDPRPStyle(DeclaredMethod):
    """A clip is a matrix X of T = 16 rows, one a frame: the mean colours of g x g cells around mid-grey, d = 3 g g
    numbers, each row shortened to length C. Two things leave it: the projection P = X R + N1, R a public random d x k
    matrix, and the covariance S = X^T X + N2, N2 symmetric. The leading right singular vectors V of S span the rows of
    the release, X' = P (V^T R)^+ V^T, enlarged to the canvas; they are fewer than the k columns, so that V^T R can be
    inverted without blowing up the noise.

    Adjacency: one whole clip is exchanged for any other. A row of X R moves by 2 C at most, since R is divided by its
    largest singular value, and all 16 rows move. Both covariances are positive and have a trace of at most T C^2, so
    that their inner product is not negative and |S - S'|^2 <= |S|^2 + |S'|^2 <= 2 T^2 C^4 in the Frobenius norm: a
    sensitivity of sqrt(2) T C^2. N2 is drawn for the d (d + 1) / 2 coordinates in which that norm is the Euclidean
    one (off the diagonal times sqrt(2)). rho is shared by `share`, half each; both together cost an exact epsilon of 8
    at delta 1e-5. The claim is declared: the method clips and adds the noise itself.

    A frame in which no face is found is never passed on: a grey one, a row of nearly zeros, takes its place in X and
    gets the same noise. Both sensitivities hold for any two clips, this one among them, so that it costs nothing; to
    mark the frame in the release would be one more answer, and unpaid. How many frames were greyed stands in the
    organiser's log and nowhere else.

    Source: Video-DPRP, arXiv 2503.02132, of which only summaries were read; no official code was found. Kept: the
    matrix of a video, Johnson-Lindenstrauss projection, noise on projection and covariance, reconstruction from the
    singular vectors of the noisy covariance, a split budget. Ours by inference: what a record is, both sensitivities
    and the calibration, hence `_style`; a clip, not a frame, is protected. Scaled: cells in place of pixels, because
    the covariance of all pixels does not fit. At epsilon 8 the largest eigenvalue of the noise on the covariance is
    over twenty times the largest that a covariance can have: little but noise is to be expected.
    """

    variants = {"eps2": {"epsilon": 2.0}, "eps5": {"epsilon": 5.0}, "eps16": {"epsilon": 16.0},
                "paper": {"grid": 16, "columns": 192, "components": 8}}

    def __init__(self, *, epsilon: float = 8.0, grid: int = 8, columns: int = 48, components: int = 4,
                 share: float = 0.5):
        if not 1 <= components <= columns <= COLOURS * grid**2:
            raise ConfigError(f"{components} components, {columns} columns and {grid} x {grid} cells do not go "
                              "together.",
                              "A projection has fewer columns than a row has numbers, and no more vectors are kept.",
                              f"Use 1 <= components <= columns <= {COLOURS * grid**2}.")
        self.grid, self.columns, self.components, self.width = grid, columns, components, COLOURS * grid**2
        self.clip = 0.25 * np.sqrt(self.width)  # C: cells lie a quarter from mid-grey; a black frame is twice as long
        ball = CLIP_FRAMES * self.clip**2 / np.sqrt(2)  # a ball of the covariances' diameter, sqrt(2) T C^2
        deviation = self._deviations(epsilon, share, ball)
        self.terms = FullClaim(unit="clip", delta=DELTA, branches=(
            BranchClaim(PROJECTION, "gaussian", clip_norm=self.clip, noise_std=deviation[PROJECTION],
                        dim=columns),
            BranchClaim(COVARIANCE, "gaussian", clip_norm=ball, noise_std=deviation[COVARIANCE], rows=1,
                        dim=self.width * (self.width + 1) // 2)))

    def _deviations(self, epsilon: float, share: float, ball: float) -> dict[str, float]:
        """Standard deviations a coordinate: 16 rows of the projection, one of the covariance, one budget."""
        clip = {PROJECTION: self.clip * np.sqrt(CLIP_FRAMES), COVARIANCE: ball}
        return floors(epsilon, DELTA, clip_norm=clip, share={PROJECTION: share, COVARIANCE: 1 - share}, frames=1)

    def release(self, video, ctx):
        frames, lost = faces_only(video.frames)
        if lost:
            print(f"video_dprp_style: no face in {lost} of {len(frames)} frames: grey before the noise")
        rows = self.rows(frames)  # (16, d)
        matrix = self.matrix(ctx.rng("projection"))  # (d, k), public
        projected = rows @ matrix + ctx.noise.draw(Event(PROJECTION, len(rows)))
        covariance = rows.T @ rows + symmetric(ctx.noise.draw(Event(COVARIANCE, 1))[0], self.width)
        return Video(self.paint(self.rebuilt(projected, covariance, matrix), video.frames.shape), video.fps)

    def rows(self, frames: np.ndarray) -> np.ndarray:
        """float64 (T, d): cells of each frame around mid-grey, shortened to length C where longer."""
        small = np.stack([cv2.resize(f, (self.grid, self.grid), interpolation=cv2.INTER_AREA) for f in frames])
        rows = small.reshape(len(small), -1) / 255.0 - 0.5
        return rows * np.minimum(1, self.clip / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))

    def matrix(self, rng: np.random.Generator) -> np.ndarray:
        """Public (d, k): normal entries, divided by the largest singular value, so that no row grows."""
        drawn = rng.normal(size=(self.width, self.columns))
        return drawn / np.linalg.norm(drawn, ord=2)

    def rebuilt(self, projected: np.ndarray, covariance: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        """(T, d) from released values alone, shortened to length C again."""
        vectors = np.linalg.eigh(covariance)[1][:, -self.components:]  # (d, components), the largest last
        rows = projected @ np.linalg.pinv(vectors.T @ matrix, rcond=SMALLEST) @ vectors.T
        return rows * np.minimum(1, self.clip / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))

    def paint(self, rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """uint8 (T, H, W, 3): the cells, enlarged."""
        cells = np.clip(rows + 0.5, 0, 1).reshape(-1, self.grid, self.grid, COLOURS).astype(np.float32)
        large = [cv2.resize(c, (shape[2], shape[1]), interpolation=cv2.INTER_LINEAR) for c in cells]
        return np.rint(np.clip(np.stack(large), 0, 1) * 255).astype(np.uint8)


def symmetric(values: np.ndarray, width: int) -> np.ndarray:
    """Symmetric (width, width) whose Frobenius norm is the length of `values` (width (width + 1) / 2,)."""
    upper, out = np.triu_indices(width), np.zeros((width, width))
    out[upper] = values
    out[~np.eye(width, dtype=bool)] /= np.sqrt(2)
    return out + np.triu(out, 1).T
