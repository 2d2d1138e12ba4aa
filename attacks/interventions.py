"""interventions: does the released video depend on what the clip said? Inputs changed before the noise."""

from bench import Column, Reread, ThreatModel, attack, told_apart


@attack("interventions")
class Interventions(Reread):
    """The harness changes the clipped inputs of test clips before it draws the noise: the rows of one branch, or of
    every branch, come from another test clip (`shuffle:BRANCH`, `shuffle:all`), or all are zero (`zero`). Noise, plan
    and render stay as they are. What comes out is read by networks that were trained on the ordinary releases and are
    not trained again: the expression evaluator, the frame and the clip attacker. A number that stays high when its
    branch is shuffled is read from somewhere else: another branch, or what the decoder or the network takes for
    likely. Every branch has a shuffle of its own, the same one alone and with all. Such a folder is nobody's release:
    it is never shown, published, imported or ranked. Chance is 1 / classes or 1 / people. Source: TADP table 9.
    """

    threat = ThreatModel(knows="networks trained on ordinary releases, and releases of changed inputs", reads="vault",
                         trained_on="nothing", decoding="assembled")
    readers = ("fer@x3d", "plr", "cplr")
    columns = (
        Column(id="fer", unit="rate", better="none", low=0, high=1, role="diagnostic",
               title="Expression recognised after a change of inputs", source="TADP table 9"),
        Column(id="plr", unit="rate", better="none", low=0, high=1, role="diagnostic",
               title="Identified from a frame after a change of inputs", source="TADP table 9"),
        Column(id="cplr", unit="rate", better="none", low=0, high=1, role="diagnostic",
               title="Identified from a clip after a change of inputs", source="TADP table 9"),
    )

    def columns_of(self, method):
        return told_apart(self.columns, "intervention", self.interventions(method))
