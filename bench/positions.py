"""Neighbouring work and planned data: what each of them protects or serves for, as their papers say. No result here.

`WORKS` is what the page "how the claims differ" and the table brmoe-1 show; `ROLES` what BR-MoE plans with which data.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """gives: what it puts out.  protects: what its privacy is about.  apart: why it shares no section here.

    method: our row in its manner, if there is one.  traffic: does BR-MoE place itself beside it (its Table 1)?
    """

    name: str
    gives: str
    protects: str
    apart: str
    method: str | None = None
    traffic: bool = False


WORKS = (
    Work("RL-MoE", "Refined scene descriptions", "Judged by attacks only", "No account of repeated releases, so no ε",
         "rl_moe", traffic=True),
    Work("VTPM", "Reports of pedestrian activity", "Identity is left out of the text",
         "No formal claim; a baseline for reports", "vtpm_style", traffic=True),
    Work("DP-Cap", "A visual representation", "Image and caption records it was trained on",
         "New input at inference time is not protected", traffic=True),
    Work("SPTI", "Synthetic images by way of text", "Entries of a private dataset",
         "Makes a batch once; releases no one's live video", traffic=True),
    Work("Privid", "Answers to aggregate queries", "Events of bounded duration",
         "The ground for isolated chunks; gives answers, no video", "privid_style", traffic=True),
    Work("GeoPrivd", "Answers to traffic queries over places", "One trajectory's influence",
         "Another unit and another kind of release", traffic=True),
    Work("Adversarial training, supervised or in a latent space", "Transformed video or features",
         "Attributes that its own adversary predicts", "No formal claim; ranks under “no formal claim”"),
    Work("DP identity latents and DP images", "One image", "One image or its identity code",
         "A video is many images; a claim per image must be composed first"),
    Work("PartialFace", "Features for a recogniser", "The look of the face, while identity stays usable",
         "Keeps what this benchmark wants hidden"),
)

ROLES = {  # dataset: what BR-MoE means to use it for; the last two stand for data that it only announces
    "cityflow": "the main stream of fixed cameras; attacks on single vehicles",
    "bdd100k": "perception, and how experts fare in another domain",
    "mint_v2x": "public simulation, to strain the controller",
    "trafficfolder": "its announced annotated subset: all four experts together, on a camera of your own",
    "sumo_crossing": "all four experts together, on a simulated crossing whose counts are exact",
}
