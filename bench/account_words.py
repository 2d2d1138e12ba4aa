"""The words of `bench.account`: what a unit, a number, a bound and a conversion mean to a privacy officer.

Every function reads a report (or a claim) and returns text; nothing is computed but powers of e and percentages.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from bench.privacy.claims import CHUNK_SECONDS, FullClaim

WIDTH = 98
Report = Mapping[str, Any]
NOT_COVERED = (
    "Training membership: whether somebody's video was used to train the method.",
    "Metadata outside the mechanism: file names, times, who publishes; duration and number of clips are public.",
    "A curator who cannot be trusted: whoever holds the original videos or the noise can undo it.",
    "Several videos of one person: each adds its own loss, and nothing bounds how many there are.",
)
UNITS = {
    "clip": "one clip of {frames} frames", "source_video": "one whole source video of {clips} clip(s)",
    "frame": "one frame", "event": "one event that touches at most {chunks} chunks of {seconds} s",
    "pixels": "at most {m} pixels", "label": "one label",
    "image_metric": "one step of distance 1 between two images, in a space of the method's own, in every frame",
    "none": "nothing",
}
ADJACENCIES = {
    "replace": "Replacement by any other of its kind; nothing is added or removed.",
    "metric": "Images further apart are less protected, in proportion to their distance.",
    "none": "There is no formal claim.", "per_frame": "They may change in every frame, in all colour channels.",
    "per_window": "It may touch as many in every window.",
    "total": "That is the limit over the whole horizon.",
}
NOTES = {
    "clip": "They hold for an attacker who reads {horizon}; a clip decoded with memory of others counts as those "
            "too.",
    "source_video": "They hold for an attacker who reads the whole video, and no other video of the person.",
    "frame": "They hold for an attacker who reads one frame; a clip has many, and their losses add up.",
    "event": "They hold for one stream with and without the event, not for telling one person from another.",
    "pixels": "They hold for two videos that differ in these pixels, not for another person: a face fills far more.",
    "label": "They hold for guessing the label, which is all that is released about the video.",
    "image_metric": "They hold for images that differ by one unit of distance in every frame, not for another person.",
}
QUANTITIES = {  # key: (short name, unit, sentence)
    "epsilon_exact": ("epsilon, exact", "nat", "From the whole curve of the noise (Balle and Wang 2018): the tightest "
                      "of the three. It places the row on the board."),
    "epsilon_cks": ("epsilon, CKS", "nat", "Converted from rho by Canonne, Kamath and Steinke (2020). As true, but "
                    "less tight."),
    "epsilon_mironov": ("epsilon, Mironov", "nat", "Converted from rho by Mironov (2017), as many papers do. As true, "
                        "and the least tight."),
    "epsilon_pure": ("epsilon, pure", "nat", "It holds without exception: delta is 0."),
    "epsilon_sum": ("epsilon, sum", "nat", "{sum}"), "epsilon_max": ("epsilon, in all", "nat", "{max}"),
    "mu": ("mu", "sd", "Two inputs are as hard to tell apart as two bell curves that stand this many standard "
           "deviations apart."),
    "rho": ("rho", "nat", "Zero-concentrated loss. It adds up: two such releases of one input cost twice as much."),
    "delta": ("delta", "probability", "On top of that: what could not happen before may become this likely."),
}
SUMS = {
    "event": ("If an event may touch so many chunks in every window, all windows add up.",
              "If it may touch so many in all, only its most used chunks count."),
    "pixels": ("If so many pixels may change in every frame, all frames add up.",
               "If so many may change in the whole video, frames do not add up."),
}


def unit_words(claim: FullClaim) -> str:
    """The protected unit, as in "one clip of 16 frames"; what is composed changes all at once."""
    many = claim.clips * (claim.label.labels if claim.label else 1)
    if many > 1 and claim.unit in ("clip", "label", "frame"):
        kind = {"clip": f"clips of {claim.frames} frames", "label": "labels", "frame": "frames"}[claim.unit]
        return f"{many} {kind}, all of them at once"
    return UNITS[claim.unit].format(frames=claim.frames, clips=claim.clips, seconds=CHUNK_SECONDS,
                                    chunks=claim.event.changed_chunks if claim.event else "K",
                                    m=claim.pixels.m if claim.pixels else "m")


def adjacency_words(claim: FullClaim) -> str:
    """What may happen to the unit; for the pixels of a whole video and for events alike "in all"."""
    return ADJACENCIES[claim.adjacency]


def horizon_words(found: Report, rate: int) -> str:
    """The horizon with its seconds; those of clips at `rate` frames a second."""
    seconds = found["horizon_seconds"]
    if seconds is not None:
        return f"{found['horizon']}, {seconds:g} s"
    if found["unit"] == "none":
        return "none"
    if found["unit"] == "frame":
        return f"{found['horizon']}, {1 / rate:g} s each at {rate} frames/s"
    return f"{found['horizon']}, {found['frames'] * found['clips'] / rate:g} s at {rate} frames/s"


def text_of(value: Any) -> str:
    """A number in four digits, "infinite", or a dash."""
    return "-" if value is None else "infinite" if value == "inf" else f"{float(value):.4g}"


def percent(rate: float, direction: str = "") -> str:
    """`58.9 %`. A bound is rounded away from what it bounds: up for "at most", down for "at least"."""
    tenths = 1000 * rate
    whole = math.ceil(tenths - 1e-9) if direction == "at most" else math.floor(tenths + 1e-9) if direction else \
        round(tenths)
    return f"{whole / 10:.1f} %"


def quantity_rows(found: Report) -> list[dict[str, str]]:
    """{key, name, value, unit, words} of every number that applies."""
    sums = SUMS.get(found["unit"], ("", ""))
    return [{"key": key, "name": name, "value": text_of(found[key]), "unit": "" if found[key] == "inf" else unit,
             "words": words.format(sum=sums[0], max=sums[1])}
            for key, (name, unit, words) in QUANTITIES.items()
            if found[key] is not None and (key, found[key]) != ("delta", 0.0)]


def meaning(found: Report) -> str:
    """What the epsilon that places the row says about anybody who reads the release."""
    epsilon, unit = found["epsilon"], found["unit"]
    if epsilon == "inf":
        return "Epsilon is infinite: nothing limits what somebody who reads the release may find out. Attacks that " \
               "fail on it show only that these attackers failed."
    one = found["unit_words"].startswith("one")
    change = {"image_metric": "with an image at distance 1", "event": "without the event",
              "pixels": "with other values in these pixels", "source_video": "with another video instead"
              }.get(unit, f"with another {unit} instead" if one else f"with other {unit}s instead")
    factor = math.exp(min(epsilon, 700))
    times = f"at most {factor:,.{2 if factor < 100 else 0}f} times" if factor < 1e6 else \
        "possibly more than a million times"
    plus = f", plus {found['delta']:g}" if found["delta"] else ""
    right = found["ceilings"]["one_bit"]
    told = f"is right in at most {percent(right['bound'], 'at most')} of cases; guessing gives 50 %" \
        if not right["no_limit"] else "may be right nearly always: this epsilon sets no useful limit"
    return f"Whatever somebody concludes from the release is {times} as likely as it would have been {change}{plus}. " \
           f"Who must tell the two apart, each as likely as the other, {told}."


def ceiling_lines(found: Report) -> list[dict[str, Any]]:
    """{name, bound, chance, theorem} in words, one for each ceiling; empty when epsilon is infinite."""
    ceilings = found["ceilings"]
    if ceilings is None:
        return []
    things = "labels" if found["unit"] == "label" else "people"
    rows = [(f"naming one of {n} equally likely {things}: right", row)
            for n, row in (ceilings["top1"] or {}).items()]
    rows += [("two cases apart: area under the ROC curve", ceilings["auc"]),
             ("two cases apart: equal error rate", ceilings["eer"]),
             (f"two cases apart: true accepts at {percent(ceilings['tar']['far'])} false accepts", ceilings["tar"])]
    return [{"name": name, "bound": _bound(row), "chance": percent(row["chance"]), "theorem": row["theorem"]}
            for name, row in rows]


def _bound(row: Mapping[str, Any]) -> str:
    if row["no_limit"]:
        return "no limit at this epsilon"
    return f"{row['direction']} {percent(row['bound'], row['direction'])}"


def ceilings_note(found: Report) -> str:
    """For whom the ceilings hold."""
    return NOTES[found["unit"]].format(horizon=found["horizon"]) if found["ceilings"] else ""


# ---- text ----------------------------------------------------------------------------------------------------------

def lines(found: Report) -> list[str]:
    """The report for a reader, at most 100 columns wide."""
    return list(_lines(found))


def _lines(found: Report) -> Iterator[str]:
    infinite = found["epsilon"] == "inf"
    yield from _wrapped(f"{found['name']}: " + (
        "no formal claim, epsilon is infinite" if found["unit"] == "none" else
        f"epsilon = {text_of(found['epsilon'])}{'' if infinite else ' nat'} at delta = {found['delta']:g}"))
    if found.get("lane"):
        yield f"lane: {found['lane']}"
    if found["unit"] != "none":
        seconds = "" if found["horizon_seconds"] is None else f" ({found['horizon_seconds']:g} s)"
        yield from _wrapped(f"protected: {found['unit_words']}. {found['adjacency_words']}")
        yield from _wrapped(f"horizon: {found['horizon']}{seconds}")
    yield ""
    yield from _wrapped(meaning(found))
    yield from _quantities(found)
    yield from _heading("Ceilings: what the best attacker can reach, whatever it knows" if not infinite else "")
    for row in ceiling_lines(found):
        yield f"  {row['name']:<52} {row['bound']:<24} guessing: {row['chance']}"
    yield from _wrapped(ceilings_note(found), "  ")
    if infinite:
        yield from _heading("Ceilings")
        yield "  none: an infinite epsilon sets no limit."
    yield from _listed("It holds if" if not infinite else "Why", found["assumptions"])
    yield from _listed("It does not cover", [] if infinite else found["not_covered"])
    yield from _conversions(found)


def _quantities(found: Report) -> Iterator[str]:
    if found["unit"] == "none":
        return
    yield from _heading("The same guarantee in every currency")
    for row in quantity_rows(found):
        first = f"  {row['name']:<17} {row['value']:>9} {row['unit']:<11} "
        yield from _wrapped(row["words"], first, " " * len(first))
    yield "  nat: natural logarithm of a ratio of chances.  sd: standard deviations."


def _conversions(found: Report) -> Iterator[str]:
    if not found["conversions"]:
        return
    for possible, title in ((True, "What follows for other units"), (False, "What does not follow")):
        rows = [row for row in found["conversions"] if row["possible"] is possible]
        yield from _heading(title if rows else "")
        for row in rows:
            numbers = [f"{key} = {text_of(row[key])} {unit}".strip() for key, unit in
                       (("epsilon", "nat"), ("mu", "sd"), ("rho", "nat")) if row[key] is not None]
            if row["epsilon"] is not None:
                numbers[0] += f" at delta = {row['delta']:g}"
            yield from _wrapped(row["to"], "  - ", "    ")
            yield from _wrapped(", ".join(numbers), "    ")
            yield from _wrapped(row["words"], "    ", "    ")


def _heading(text: str) -> Iterator[str]:
    if text:
        yield from ("", text)


def _listed(title: str, sentences: list[str]) -> Iterator[str]:
    yield from _heading(title if sentences else "")
    for sentence in sentences:
        yield from _wrapped(sentence, "  - ", "    ")


def _wrapped(text: str, first: str = "", rest: str | None = None) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=first if rest is None else rest)
