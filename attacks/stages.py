"""stages: how plainly the label can be read at each stage of an enforced release."""

import numpy as np

from bench import Column, Probe, ThreatModel, attack, told_apart
from bench.nets.linear_probe import linear_probe, probe_scores


@attack("stages")
class Stages(Probe):
    """A linear probe of the label at each stage of an enforced release: the clipped values before the noise, the noisy
    ones, and whatever the method's own `inspect` names after them. A sample is a source video: the mean of its unpadded
    frames. One linear layer is trained on development people (epoch e reads draw e mod R), stopped on calibration
    people and read on test people, with three seeds; the number is their mean. Each coordinate is first brought to one
    spread over the training videos, so that units do not decide. What a probe cannot read is not gone: a network may
    still find it. The clipped stage is never released. It ranks nothing; chance is 1 / classes. Source: TADP table 8;
    AdamW 1e-3, weight decay 1e-4, 50 epochs at most, patience 5.
    """

    threat = ThreatModel(knows="the organiser's vault, and the labels of development people", reads="vault",
                         trained_on="released development", decoding="assembled")
    columns = (Column(id="probe", unit="rate", better="none", low=0, high=1, role="diagnostic",
                      title="Label read by one linear layer", source="TADP table 8"),)

    def __init__(self, *, epochs: int = 50, patience: int = 5):
        self.epochs, self.patience = epochs, patience

    def columns_of(self, method):
        return told_apart(self.columns, "stage", method.stages)

    def scores(self, train, calibration, test, classes, ctx):
        held_out = (calibration.features[0], calibration.labels)
        model = linear_probe(np.ascontiguousarray(train.features), train.labels, held_out, classes,
                             ctx.torch_seed("probe"), epochs=self.epochs, patience=self.patience)
        return probe_scores(model, test)
