"""Supervised adversarial anonymization: a U-Net hides from a classifier that knows who is who."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn import functional as F

from bench import method
from bench.nets.adversarial import SIZES, AdversarialAnonymizer
from bench.nets.contrastive import FaceNet, Stream, seen


@method("adversarial_supervised")
class AdversarialSupervised(AdversarialAnonymizer):
    """Plays the game of SPAct with an opponent that is told who is who: the anonymizer f_A (a U-Net, every frame for
    itself), a classifier f_B of the development people, a reader f_T of the expression. They move in turn, the others
    frozen and in evaluation mode; before the game f_A learns to copy, then f_B and f_T learn on its copies.

        f_A descends  L_A = - L_B + w L_T, w = 1               f_T descends L_T = cross entropy of the expression
        f_B descends  L_B = cross entropy of the person in one random view of a frame

    It promises nothing: f_A learns to hide what one classifier used on development people, and an attacker who trains
    on the releases of other people starts anew. Fitting reads expressions and identities.

    Kept of the method: the game of a task network and a supervised privacy network against one anonymizer, the sign of
    the privacy term, frozen opponents. Sized and scaled as in `spact`, so that the two differ by their opponent: in
    `tiny` it sees 32 frames once where that of SPAct sees 16 twice. Ours by inference: the original also offers
    gradient reversal, entropy in place of the negative cross entropy, several opponents at once and their restart; here
    is the plain negative cross entropy against one opponent that is never restarted, as SPAct's loop has it, and it has
    no upper bound, so gradients are cut at norm 5.

    Source: Wu, Wang, Wang, Jin and Wang, Privacy-preserving deep action recognition, TPAMI 44(4), 2020; the loop is
    that of Dave, Chen and Shah, SPAct, CVPR 2022 (MIT licence). In the official repository of the former no licence
    file was found; no code of it was read or copied, and no weights of it are used.
    """

    needs = frozenset({"expression", "identity"})
    assets = ("expression_method",)
    sizes = {"tiny": replace(SIZES["tiny"], views=32), "paper": SIZES["paper"]}

    def privacy_network(self, development, profile: str) -> FaceNet:
        return FaceNet(profile, development.count("identity"))

    def privacy_loss(self, faces, views: Stream) -> torch.Tensor:
        """L_B: cross entropy of the person in one view (crop, mirror, colour, erased patch) of each frame."""
        view = seen(faces.frames[:, None], views, self.game.sizes.view_px)[:, 0]
        return F.cross_entropy(self.game.privacy(self.anonymizer(view)), faces.people)
