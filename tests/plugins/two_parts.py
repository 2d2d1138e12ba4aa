"""An enforced method of two branches with hardly any noise: one says who it is, the other what label it is."""

import numpy as np

from bench import Branch, FullClaim, PrivateMethod, method

CODEBOOK = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]], np.float32)


@method("two_parts")
class TwoParts(PrivateMethod):
    """Reads the colour and the direction of the bar of `blocks`, and paints both from the noisy values."""

    fits = True
    probed = "what"
    inspects = ("sharpened", "assignment:what")
    variants = {"noisy": {"floor": 4.0}, "plain": {"inspects": ()}, "bare": {"codebook": False},
                "odd": {"inspects": ("assignment:nothing",)}}

    def __init__(self, *, floor: float = 0.02, inspects: tuple = inspects, codebook: bool = True):
        self.inspects, self.codebook = tuple(inspects), codebook
        self.branches = tuple(Branch(name, dim=dim, norm="l2", clip=1.0, noise="gaussian", floor=floor)
                              for name, dim in (("what", 2), ("who", 3)))
        self.terms = FullClaim(unit="clip", delta=1e-5)

    def fit(self, data, assets, ctx):
        pass

    def state(self):
        return {"codebook:what": CODEBOOK} if self.codebook else {"nothing": np.zeros(1)}

    def load(self, state):
        self.entries = state.get("codebook:what")

    def encode(self, atom):
        grey = atom.astype(np.float64).mean(3)  # (16, H, W)
        across, along = np.abs(np.diff(grey.mean(2), axis=1)), np.abs(np.diff(grey.mean(1), axis=1))
        what = np.stack([across.max(1), along.max(1)], axis=1)  # (16, 2)
        what = np.eye(2)[what.argmax(1)] * 0.9
        colour = np.median(atom.reshape(len(atom), -1, 3), axis=1) / 255.0 - 0.5  # (16, 3)
        return {"what": what, "who": colour}

    def render(self, transcripts, public, decoding):
        side, clips = public["canvas_px"], []
        for released in transcripts:
            colour = np.clip((released["who"] + 0.5) * 255, 0, 255)  # (16, 3)
            frames = np.broadcast_to(colour[:, None, None], (16, side, side, 3)).copy()
            for t, (flat, tall) in enumerate(released["what"]):
                lines = (np.arange(8) + 24 + 2 * t) % side
                stripes = 255.0 * (np.arange(8) % 2)
                if flat > tall:
                    frames[t][lines] = stripes[:, None, None]
                else:
                    frames[t][:, lines] = stripes[:, None]
            clips.append(frames.astype(np.uint8))
        return np.concatenate(clips)

    def inspect(self, transcripts, public):
        rows = [released["what"] for released in transcripts]
        soft = [np.exp(-((r[:, None] - self.entries[None]) ** 2).sum(2) / 0.5) for r in rows]
        given = {"sharpened": [np.sign(r[:, :1] - r[:, 1:]) for r in rows],
                 "assignment:what": [s / s.sum(1, keepdims=True) for s in soft]}
        return {name: given[name] for name in self.inspects}
