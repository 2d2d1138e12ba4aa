"""Changed inputs: what is changed, that such a folder goes nowhere, and the diagnostics of one run."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import PLUGINS
from test_rows import FACTS

from bench import registry, seeds, store
from bench.data.clips import Clips
from bench.display import diagnostic
from bench.errors import ConfigError, DataError, PluginError, Undefined
from bench.exchange import export, import_folder
from bench.privacy.claim_table import claim_to
from bench.privacy.contract import Branch, full_claim
from bench.privacy.mechanism import clip_rows
from bench.publish import _strips
from bench.ranking import rank_section, unranked_reason
from bench.registry import Spec
from bench.run import plan as planning
from bench.run import suite
from bench.run.cache import WorkFolder
from bench.run.plan import Request, make_plan
from bench.run.released import check_intervention, open_release
from bench.run.stage_attack import run_attack, run_train
from bench.run.stage_encode import padded_clip
from bench.run.stage_enforced import noise_bits, run_enforced
from bench.run.stage_intervene import changed, derangement, run_intervene, run_repeat, run_reread
from bench.run.stage_metric import run_metric
from bench.run.stage_probe import run_assign, run_probe
from bench.run.stage_transcript import read_values
from bench.run.stages import Job
from bench.run.trials import public_numbers, read_trials
from bench.run.views import save_tensors
from bench.views import boards

SUITE = suite.load(str(PLUGINS / "parts.toml"))
BRANCHES = [Branch("id", 2, floor=1.0).as_dict(), Branch("expr", 2, floor=1.0).as_dict()]
PARTS = {**FACTS, "lane": "enforced", "encodes": "method", "branches": BRANCHES, "plans": False,
         "full_claim": {"claim": {"unit": "clip", "frames": 16, "clips": 1, "delta": 1e-5, "branch": [
             {"name": n, "clip_norm": 1.0, "noise_std": 20.0} for n in ("id", "expr")]}},
         "inspects": ["context", "assignment:expr"], "probed": "expr"}


# ---- what is changed -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("count", [2, 3, 10, 501])
def test_a_derangement_leaves_nobody_in_place(count):
    found = derangement(count, seeds.derive(1, "derangement"))
    assert sorted(found) == list(range(count)) and (found != np.arange(count)).all()
    with pytest.raises(Undefined):
        derangement(1, seeds.derive(1, "derangement"))


def test_an_intervention_moves_whole_clips_of_test_people_and_of_the_named_branch_alone():
    index = [{"video": f"v{i % 20}", "clip": i // 20} for i in range(40)]
    test = {f"v{i}" for i in range(8, 20)}
    steps = {name: np.arange(40 * 16 * 2).reshape(40, 16, 2) + shift for name, shift in (("id", 1), ("expr", 10**6))}
    ours = np.array([r["video"] in test for r in index])
    one, other, both = (changed(steps, index, f"shuffle:{n}", test, 3) for n in ("expr", "id", "all"))
    assert np.array_equal(one["id"], steps["id"]) and np.array_equal(other["expr"], steps["expr"])
    for name, found in (("expr", one), ("id", other)):
        assert np.array_equal(found[name][~ours], steps[name][~ours])
        assert (found[name][ours] != steps[name][ours]).all()
        assert sorted(map(tuple, found[name][:, 0])) == sorted(map(tuple, steps[name][:, 0]))  # rows stay together
        assert np.array_equal(both[name], found[name])  # alike alone and with all
    assert not np.array_equal(both["id"] - 1, both["expr"] - 10**6)  # two branches are never shuffled alike
    assert all(not rows.any() for rows in changed(steps, index, "zero", test, 3).values())
    with pytest.raises(ConfigError, match="Did you mean shuffle:expr"):
        changed(steps, index, "shuffle:exp", test, 3)


# ---- the plan ------------------------------------------------------------------------------------------------------

@pytest.fixture
def planned(monkeypatch, tmp_path):
    def make(facts=PARTS, **changes):
        monkeypatch.setattr(planning, "known_facts", lambda spec, work: facts)
        plan = make_plan(Request(SUITE.model_copy(update={"methods": ["dp_latent"], **changes})), WorkFolder(tmp_path))
        return plan, {s.title: s for s in plan.stages}
    return make


def test_a_reader_of_changed_clips_gets_its_budget_without_what_is_for_recovered_releases(planned):
    stages = planned(budget={"plr": {"epochs": 2, "via": {"epochs": 6}}})[1]
    reread = stages["reread plr on changed dp_latent"]
    assert reread.config["reader_budget"] == {"epochs": 2} == reread.inputs["reader"].config["budget"]


def test_diagnostics_are_planned_where_a_suite_names_them_and_the_method_has_them(planned):
    plan, stages = planned()
    said = {(c["id"], str(c["params"])) for s in plan.scores for c in s.config["columns"] if s.config["attack"]}
    for name in ("shuffle:id", "shuffle:expr", "shuffle:all", "zero"):
        assert {(i, str({"intervention": name})) for i in ("fer", "plr", "cplr")} <= said
        assert stages[f"change {name} of dp_latent"].kind == "intervene"
    assert ("probe", str({"stage": "context"})) in said and ("entropy", str({"branch": "expr"})) in said
    assert ("entropy", str({"branch": "id"})) not in said
    assert stages["release often dp_latent"].config["draws"] == 3  # one for stability and quantization
    reader = stages["reread fer@x3d on changed dp_latent"].inputs["reader"]
    assert reader.digest == stages["metric fer@x3d on dp_latent"].digest and reader.inputs["release"].kind == "enforced"
    assert stages["reread plr on changed dp_latent"].inputs["reader"].inputs["release"].kind == "enforced"
    plain, _ = planned({**PARTS, "inspects": []})
    assert not [s for s in plain.scores if s.config["attack"] == "quantization"]
    assert all(s.config["attack"] is None for s in planned(FACTS)[0].scores)  # no vault, no diagnostics
    assert not {"intervene", "probe", "repeat"} & {s.kind for s in planned(attacks=["plr"])[0].stages}
    for name in ("mini", "demo"):
        assert not {"stages", "interventions", "stability", "quantization"} & set(suite.load(name).attacks)
    assert {"stages", "interventions", "stability", "quantization"} <= set(suite.load("full").attacks)


def test_no_column_of_a_release_reads_a_changed_one(planned):
    for score in planned()[0].scores:
        behind = [s for s in score.all() if s.kind == "intervene"]
        assert not behind or score.config["attack"] == "interventions"
        if behind:
            assert {(c["role"], c["better"]) for c in score.config["columns"]} == {("diagnostic", "none")}


def test_a_changed_release_has_noise_of_its_own(planned, small):
    _, stages = planned()
    clips = Clips(small)
    titles = ("release dp_latent", "change zero of dp_latent", "change shuffle:id of dp_latent")
    configs = [stages[t].config for t in titles]
    words = [noise_bits(c, clips).words(4).tolist() for c in (*configs, {**configs[1], "intervention": None})]
    assert len({str(w) for w in words}) == 4


# ---- it goes nowhere -----------------------------------------------------------------------------------------------

@pytest.fixture
def forged(tmp_path) -> Path:
    """A folder that looks like any release but for one word in release.json."""
    folder = tmp_path / "stage"
    for part in ("release/media", "vault"):
        (folder / part).mkdir(parents=True)
    (folder / "release" / "release.json").write_text(json.dumps({"intervention": "zero", "transcript": ""}))
    record = {"id": "a", "draw": 0, "clip": -1, "frames": 16, "fps": 25.0, "file": "0.mkv", "sha256": ""}
    known = {"id": "a", "video": "v", "person": "p", "label": "l", "part": "test", "role": "probe"}
    pq.write_table(pa.Table.from_pylist([record]), folder / "release" / "manifest.parquet")
    pq.write_table(pa.Table.from_pylist([known]), folder / "vault" / "idmap.parquet")
    return folder


def test_who_opens_a_changed_release_as_a_release_is_refused(forged):
    for call in (lambda: open_release(forged), lambda: open_release(forged, intervention="shuffle:all"),
                 lambda: read_values(forged / "release", ()), lambda: check_intervention(forged / "release")):
        with pytest.raises(DataError, match="never shown, published, imported or ranked"):
            call()
    assert len(open_release(forged, intervention="zero")) == 1
    (forged / "release" / "release.json").write_text("{}")
    with pytest.raises(DataError):
        open_release(forged, intervention="zero")  # nor is a release an intervention


@pytest.mark.parametrize("run, name", [(run_metric, "psnr_released"), (run_metric, "fer@x3d"), (run_attack, "plr")])
def test_no_metric_and_no_attack_reads_a_changed_release(forged, tmp_path, run, name, small):
    spec = Spec.parse(name)
    config = {"metric": spec.name, "attack": spec.name, "variant": spec.variant, "budget": {}, "profile": "tiny",
              "seed": 1, "numbers_seed": 1}
    with pytest.raises(DataError, match="nobody's release"):
        run(Job(config, {"release": forged, "clips": small, "train": forged}, tmp_path, print))


def test_no_strip_is_made_of_a_changed_release(tmp_path):
    config = {"decoding": "assembled", "parts": ["development", "enrolment", "probe"], "intervention": "zero"}
    records = [{"kind": kind, "digest": "d" * 64, "identity": {"config": config, "inputs": {"clips": "c" * 64}}}
               for kind in ("enforced", "intervene")]
    assert list(_strips(WorkFolder(tmp_path), records, Spec("two_parts"), tmp_path)) == []


def forged_cell(**changes):
    cell = {"method": "m", "variant": None, "dataset": "synthfaces", "profile": "tiny", "lane": "enforced",
            "unit": "clip", "adjacency": "replace", "horizon": "clip", "delta": 1e-5, "epsilon": 8.0, "attack": "plr",
            "metric": "top1", "evaluator": None, "via": "direct", "decoding": "assembled", "value": 0.0, "lo": 0.0,
            "hi": 0.1, "better": "lower", "role": "privacy", "status": "ok", "source": "measured", "chance": 0.1,
            "params": {"intervention": "zero"}, "person_values": {}, "control": None, "metric_unit": "rate",
            "draws": 1, "n": 10, "people": 5, "seeds": [1], "digest": "x", "split": "y", "title": "t"}
    return {**cell, **changes}


def test_a_number_of_changed_inputs_never_ranks_whatever_it_says_of_itself():
    cell = forged_cell()
    assert diagnostic(cell) and unranked_reason(cell) == "diagnostic: never ranked"
    assert rank_section([cell])[0].rank is None
    assert boards([cell]) == []
    assert not diagnostic(forged_cell(params=None)) and len(boards([forged_cell(params=None)])) == 1


def test_an_export_that_gives_it_out_as_a_column_is_not_imported(copied, tmp_path):
    work, out = WorkFolder(copied), tmp_path / "out"
    export(copied / "veilbench.duckdb", out)
    (out / "release").mkdir()
    (out / "release" / "release.json").write_text("{}")
    target = import_folder(work, out)
    assert sorted(p.suffix for p in target.iterdir()) == [".json", *[".parquet"] * len(store.TABLES)]  # and no folder
    rows = pq.read_table(out / "cells.parquet")
    changed_rows = [{**r, "params": '{"intervention":"zero"}'} for r in rows.to_pylist()]
    pq.write_table(pa.Table.from_pylist(changed_rows, schema=rows.schema), out / "cells.parquet")
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["files"]["cells.parquet"] = hashlib.sha256((out / "cells.parquet").read_bytes()).hexdigest()
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="never ranked"):
        import_folder(work, out)


# ---- one method, every stage ---------------------------------------------------------------------------------------

class Bench:
    """The stages of `two_parts` on blocks, run in this process; readers without a network, trained on the release."""

    def __init__(self, clips: Path, root: Path):
        self.clips, self.root, self.info = clips, root, Clips(clips)
        made = registry.build("methods", "two_parts")
        facts = {"encodes": "method", "branches": [b.as_dict() for b in made.branches], "plans": False,
                 "full_claim": claim_to(full_claim(made)), "memory_between_clips": False, "probed": made.probed,
                 "inspects": list(made.inspects)}
        self.config = {"method": "two_parts", "variant": None, "method_variant": None, "profile": "tiny", "seed": 5,
                       "numbers_seed": 5, "facts": facts, "decoding": "assembled", "budget": {}}
        made.load(made.state())
        self._encode(made)
        (root / "fit").mkdir()
        save_tensors(root / "fit" / "state.safetensors", made.state())

    def _encode(self, made):
        steps, norms, index = {b.name: [] for b in made.branches}, {b.name: [] for b in made.branches}, []
        for row in self.info.rows():
            frames = self.info.video(row).frames
            for clip in range(row.clips):
                rows = made.encode(padded_clip(frames, clip))
                for branch in made.branches:
                    steps[branch.name].append(clip_rows(rows[branch.name], branch, 16)[0])
                    norms[branch.name].append(np.linalg.norm(rows[branch.name], axis=1))
                index.append({"video": row.video, "clip": clip, "failed": False})
        vault = self.root / "encode" / "vault"
        vault.mkdir(parents=True)
        save_tensors(vault / "atoms.safetensors", {f"steps:{k}": np.stack(v) for k, v in steps.items()}
                     | {f"norm:{k}": np.stack(v) for k, v in norms.items()})
        pq.write_table(pa.Table.from_pylist(index), vault / "index.parquet")

    def run(self, name, function, inputs=(), **more):
        out = self.root / name
        out.mkdir()
        paths = {"clips": self.clips, **{k: self.root / v for k, v in dict(inputs).items()}}
        function(Job({**self.config, **more}, paths, out, lambda text: None))
        return out

    def release(self, name, function=run_enforced, **more):
        return self.run(name, function, {"encode": "encode", "fit": "fit"}, **more)


@pytest.fixture(scope="module")
def made(small, tmp_path_factory):
    bench = Bench(small, tmp_path_factory.mktemp("two-parts"))
    bench.release("release", parts=["development", "calibration", "enrolment", "probe"], draws=1)
    bench.release("often", parts=["enrolment", "probe"], draws=3)
    for name in CHANGES:
        bench.release(name, run_intervene, parts=["enrolment", "probe"], draws=1, intervention=name)
    bench.run("fer", run_metric, {"release": "release"}, metric="stripes", variant=None)
    bench.run("who", run_train, {"release": "release"}, attack="colours", variant=None)
    return bench


CHANGES = ("shuffle:what", "shuffle:who", "zero")


def test_shuffling_the_branch_with_the_label_takes_it_away_and_shuffling_the_other_does_not(made):
    found = {}
    for reader, folder in (("stripes", "fer"), ("colours", "who")):
        out = made.run(f"read {reader}", run_reread, {"reader": folder, **{f"on:{n}": n for n in CHANGES}},
                       attack="interventions", reader=reader, reader_budget={}, variant=None)
        trials = read_trials(out / "trials.parquet")
        found |= {key: trials["value"][trials["column"] == key].mean() for key in np.unique(trials["column"])}
        assert json.loads((out / "result.json").read_text())["chance"] == {"stripes": 1 / 2, "colours": 1 / 3}[reader]
    rate = {(reader, name): found[f"{reader}[intervention={name}]"]
            for reader in ("stripes", "colours") for name in CHANGES}
    assert rate["stripes", "shuffle:who"] == 1 and rate["stripes", "shuffle:what"] < 0.85
    assert rate["colours", "shuffle:what"] == 1 and rate["colours", "shuffle:who"] < 0.75
    assert rate["stripes", "zero"] < 0.85 and rate["colours", "zero"] < 0.75


def test_what_is_read_after_a_shuffle_is_what_the_other_clip_said(made):
    """Where all clips of a video got one label from elsewhere, that label is read: the change reached the picture."""
    index = pq.read_table(made.root / "encode" / "vault" / "index.parquet").to_pylist()
    rows = {r.video: r for r in made.info.rows("test")}
    numbers = {"what": np.arange(len(index))[:, None, None]}
    donors = changed(numbers, index, "shuffle:what", set(rows), 5)["what"][:, 0, 0]
    given: dict[str, set] = {}
    for record, donor in zip(index, donors):
        if record["video"] in rows:
            given.setdefault(record["video"], set()).add(rows[index[donor]["video"]].label)
    out = made.run("read again", run_reread, {"reader": "fer", "on:shuffle:what": "shuffle:what"},
                   attack="interventions", reader="stripes", reader_budget={}, variant=None)
    trials = read_trials(out / "trials.parquet")
    videos = public_numbers(list(rows), 5, "videos")
    read = {v: made.info.labels[trials["predicted"][trials["video"] == number][0]] for v, number in videos.items()}
    plain = {v: next(iter(labels)) for v, labels in given.items() if len(labels) == 1}
    assert len(plain) >= 5 and all(read[v] == label for v, label in plain.items())


def test_probes_read_the_label_where_it_is(made):
    out = made.run("probe", run_probe, {"release": "release", "encode": "encode", "fit": "fit"}, attack="stages",
                   variant=None)
    trials = read_trials(out / "trials.parquet")
    assert set(trials["seed"]) == {42, 43, 44}
    for stage in ("clipped", "noisy", "sharpened"):
        assert trials["value"][trials["column"] == f"probe[stage={stage}]"].mean() == 1, stage


def test_the_same_label_in_every_draw_and_the_assignment_of_what_was_released(made):
    out = made.run("repeat", run_repeat, {"release": "often", "reader": "fer"}, attack="stability", variant=None,
                   reader="stripes", reader_budget={}, budget={"draws": 3})
    trials = read_trials(out / "trials.parquet")
    for name, wanted in (("fer_mean", 1), ("modal_agreement", 1), ("pairwise_agreement", 1), ("fer_std", 0)):
        assert (trials["value"][trials["column"] == f"{name}[R=3]"] == wanted).all(), name
    out = made.run("assign", run_assign, {"release": "often", "fit": "fit"}, attack="quantization", variant=None,
                   budget={"draws": 3})
    trials = read_trials(out / "trials.parquet")
    whole = trials["person"] == 0
    found = {k: trials["value"][(trials["column"] == k) & whole][0] for k in np.unique(trials["column"])}
    distance = np.array([0.01, 0.81 + 1, 2.1**2 + 16])  # of (.9, 0) to the three entries
    chances = np.exp(-distance / 0.5) / np.exp(-distance / 0.5).sum()
    assert found["max_probability[branch=what]"] == pytest.approx(chances.max(), abs=0.01)
    assert found["entropy[branch=what]"] == pytest.approx(-(chances * np.log(chances)).sum(), abs=0.02)
    assert found["top1_agreement[branch=what]"] == 1
    assert found["entry_norm[branch=what]"] == pytest.approx(7 / 3)


def test_a_branch_without_its_codebook_is_an_error_of_the_method(made, tmp_path):
    made.root.joinpath("bare").mkdir()
    save_tensors(made.root / "bare" / "state.safetensors", {"nothing": np.zeros(1)})
    with pytest.raises(PluginError, match="no codebook"):
        made.run("no codebook", run_assign, {"release": "often", "fit": "bare"}, attack="quantization", variant=None)
