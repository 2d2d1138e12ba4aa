"""Self-supervised adversarial anonymization: a U-Net hides what makes two views of one frame recognisable."""

from __future__ import annotations

from bench import method
from bench.nets.adversarial import SelfSupervisedAnonymizer


@method("spact")
class SPAct(SelfSupervisedAnonymizer):
    """Plays three networks against each other. The anonymizer f_A, a U-Net with a sigmoid, changes every frame for
    itself; the privacy network f_B learns without any label to recognise two random views of one frame among views of
    others; the reader f_T learns the expression. They move in turn, the others frozen and in evaluation mode:

        f_A descends  L_A = - L_B + w L_T, w = 1        f_B descends L_B, f_T descends L_T
        L_B = NT-Xent(f_B(f_A(view 1)), f_B(f_A(view 2))), tau 0.1, 2 N - 2 negatives       L_T = cross entropy

    Before the game f_A learns to copy (L1), then f_B and f_T learn on its copies. It promises nothing: what is hidden
    is what one opponent found, and an attacker who trains on the releases starts anew. Fitting reads expressions and no
    identity.

    Kept of the method: all of the above, Adam, views made before f_A (crop to 0.6 or more, mild colour, no colour in a
    tenth, mirror, an erased patch). `paper`: the U-Net of 17,267,523 parameters, ResNet-50 with the head
    2048-2048-128, R3D-18 with a dilated last stage, 112 px, 16 frames, batches of 24 clips and 64 frames, rate 1e-4.
    `tiny` scales that: a U-Net of 8 to 64 channels, a ten-layer residual network, an X3D that starts from the shared
    `expression_method`, 4 frames of a clip, 6 clips and 16 frames a batch, 150 rounds, larger rates. Ours by inference:
    faces and expressions in place of the photographs and actions of the original, the number of steps, rates in `tiny`,
    gradients cut at norm 5, hue and gamma left out of the views, views of 48 px in `tiny`, and that a canvas larger
    than the side is shrunk before the U-Net and enlarged after it. The variant `no_privacy` trains the same U-Net
    without L_B: what the detour through a U-Net does by itself.

    Source: Dave, Chen and Shah, SPAct, CVPR 2022. The official code (MIT licence) gives the constants; it publishes no
    weights, so that there are none to load. Written anew, no code copied.
    """

    needs = frozenset({"expression"})
    assets = ("expression_method",)
    variants = {"no_privacy": {"privacy_weight": 0.0}}
