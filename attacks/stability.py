"""stability: what one fixed evaluator reads from many releases of the same videos."""

import numpy as np

from bench import Column, Repeat, ThreatModel, attack, column_key, told_apart


@attack("stability")
class Stability(Repeat):
    """Releases the same test videos R times, with fresh noise and all else fixed, and reads each with the expression
    evaluator that was trained on the ordinary releases. `fer_mean`: accuracy over all draws; `fer_std`: standard
    deviation of the R accuracies (mean of person means, R - 1 below). `modal_agreement`: share of a video's draws whose
    label is its most frequent one, mean over videos, with `modal_std`, the deviation over draws of the share of videos
    that agree. `pairwise_agreement`: share of a video's pairs of draws with equal labels; modal agreement is never
    under 1 / R, this one is free of R. Agreement says nothing of being right. It ranks nothing. Source: TADP table 10;
    the pairs are ours.
    """

    threat = ThreatModel(knows="a network trained on ordinary releases, and many releases of one input", reads="draws",
                         trained_on="nothing", decoding="assembled")
    readers = ("fer@x3d",)
    columns = (
        Column(id="fer_mean", unit="rate", better="none", low=0, high=1, role="diagnostic",
               title="Expression recognised, mean of draws", source="TADP table 10"),
        Column(id="fer_std", unit="rate", better="none", low=0, high=1, role="diagnostic", statistic="jackknife",
               title="Expression recognised, deviation over draws", source="TADP table 10"),
        Column(id="modal_agreement", unit="rate", better="none", low=0, high=1, role="diagnostic",
               title="Draws that agree with the most frequent label", source="TADP table 10"),
        Column(id="modal_std", unit="rate", better="none", low=0, high=1, role="diagnostic", statistic="jackknife",
               title="The same, deviation over draws", source="TADP table 10"),
        Column(id="pairwise_agreement", unit="rate", better="none", low=0, high=1, role="diagnostic",
               title="Pairs of draws with equal labels", source="ours"),
    )

    def __init__(self, *, draws: int = 20, subset: str | None = None):
        self.draws, self.subset = draws, subset

    def columns_of(self, method):
        return told_apart(self.columns, "R", (self.draws,))

    def agreement(self, predicted, truth):
        draws, counts = len(predicted), np.bincount(predicted)
        pairs = float((counts * (counts - 1)).sum() / (draws * (draws - 1))) if draws > 1 else float("nan")
        return {"fer_mean": float((predicted == truth).mean()), "modal_agreement": float(counts.max() / draws),
                "pairwise_agreement": pairs}

    def values(self, branches):
        predicted = branches["predicted"]
        mode = np.bincount(predicted).argmax()  # the first of several
        return {"right": (predicted == branches["truth"])[None], "modal": (predicted == mode)[None]}  # (1, R)

    def pooled(self, values, people):
        by_person = [people == person for person in np.unique(people)]
        right = np.mean([values["right"][mine].mean(0) for mine in by_person], axis=0)  # (R,)
        modal = np.mean([values["modal"][mine].mean(0) for mine in by_person], axis=0)
        return {column_key(name, {"R": self.draws}): float(of.std(ddof=1)) if len(of) > 1 else float("nan")
                for name, of in (("fer_std", right), ("modal_std", modal))}
