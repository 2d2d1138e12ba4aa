"""Which stages a suite with recoveries, draws and clip-level attackers asks for, and that they run."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import PLUGINS, start

from bench import registry, store
from bench.data.clips import Clips
from bench.errors import ConfigError
from bench.run import plan as planning
from bench.run import suite
from bench.run.cache import WorkFolder
from bench.run.plan import Request, make_plan
from bench.run.released import open_release
from bench.run.worker_main import Session

LONG = suite.load(str(PLUGINS / "long.toml"))
FACTS = {"lane": "none", "needs": [], "assets": [], "fits": False, "control": None, "doc": "", "variants": [],
         "memory_between_clips": False,
         "claim": {"unit": "none", "adjacency": "none", "horizon": "none", "delta": 0.0, "epsilon": "inf"}}


@pytest.fixture
def planned(monkeypatch, tmp_path):
    def make(facts=None, **changes):
        monkeypatch.setattr(planning, "known_facts", lambda spec, work: {**FACTS, **(facts or {})})
        chosen = LONG.model_copy(update={"methods": ["blur"], **changes})
        return {s.title: s for s in make_plan(Request(chosen), WorkFolder(tmp_path)).stages}
    return make


def test_a_recovery_is_trained_once_and_read_by_every_column_of_via(planned):
    stages = planned()
    derived = stages["apply recover_unet to blur"]
    assert set(derived.inputs) == {"train", "release"} and derived.config["subset"] == "one"
    assert stages["train plr on blur via recover_unet"].inputs["release"] is derived  # retrained on what was recovered
    assert stages["attack plr on blur via recover_unet"].inputs["release"] is derived
    match = stages["attack open_set on blur via recover_unet"]  # never retrained: same matcher, other probes
    assert match.inputs["probes"] is derived and match.inputs["train"] is stages["train open_set on blur"]
    score = stages["score fd_id@synth on blur via recover_unet"].config
    assert score["via"] == "recover_unet" and [c["id"] for c in score["columns"]] == ["fd_id", "fd_id_pr"]
    assert "attacks/recover_unet" in score["plugins"] and score["digest"] != stages[
        "score fd_id@synth on blur"].config["digest"]


def test_an_attacker_of_a_recovered_release_may_have_a_budget_of_its_own(planned):
    stages = planned(budget={"plr": {"epochs": 1, "via": {"epochs": 3}}})
    plain = planned(budget={"plr": {"epochs": 1}})
    for step in ("train", "attack"):
        assert stages[f"{step} plr on blur"].digest == plain[f"{step} plr on blur"].digest
        assert stages[f"{step} plr on blur via recover_unet"].config["budget"] == {"epochs": 3}
    said = [s["score plr on blur via recover_unet"].config["digest"] for s in (stages, plain)]
    assert said[0] != said[1], "a cell names the budget that it was measured with"


def test_features_are_computed_once_for_all_distances_that_read_them(planned):
    stages = planned(methods=["blur", "blackout"], metrics=["fd_id@synth", "mmd_id@synth", "fvd@synth"],
                     via=["fd_id@synth", "mmd_id@synth"])
    assert sorted(t for t in stages if t.startswith("embed fd_id") and "blackout" not in t) == [
        "embed fd_id@synth on blur", "embed fd_id@synth on blur via recover_unet", "embed fd_id@synth on originals"]
    assert not any(t.startswith("embed mmd_id") for t in stages)
    for name in ("fd_id", "mmd_id"):
        direct, via = (stages[f"metric {name}@synth on blur{way}"].inputs for way in ("", " via recover_unet"))
        assert direct["features"].digest == via["direct"].digest == stages["embed fd_id@synth on blur"].digest
        assert via["features"].digest == stages["embed fd_id@synth on blur via recover_unet"].digest
        assert "direct" not in direct and "identity_eval" not in direct
        assert via["originals"].digest == stages["embed fd_id@synth on originals"].digest
    assert stages["metric fvd@synth on blur"].inputs["features"].digest == stages["embed fvd@synth on blur"].digest
    assert "metrics/fd_id" in stages["score mmd_id@synth on blur"].config["plugins"]
    other = planned(metrics=["fd_id@synth", "mmd_id@synth"], budget={"mmd_id@synth": {"network": "synth"}})
    fd, mmd = (other[f"metric {name}@synth on blur"].inputs["features"].digest for name in ("fd_id", "mmd_id"))
    assert fd != mmd, "another budget may embed by another network"


def test_without_memory_one_release_serves_both_decodings_and_with_it_two(planned):
    assert len([t for t in planned() if t.startswith("release")]) == 1
    stages = planned({"memory_between_clips": True})
    assert stages["release clips of blur"].config["decoding"] == "isolated"
    assert stages["train cplr on blur"].inputs["release"] is stages["release clips of blur"]
    assert stages["attack vplr on blur"].inputs["release"] is stages["release blur"]  # reads whole videos


def test_vplr_reads_the_attacker_of_cplr_and_redraw_that_of_plr(planned):
    stages = planned()
    assert stages["attack vplr on blur"].inputs["train"] is stages["train cplr on blur"]
    assert stages["attack redraw on blur"].inputs["train"] is stages["train plr on blur"]
    assert "train vplr on blur" not in stages and "train redraw on blur" not in stages


def test_without_noise_there_is_one_draw(planned):
    assert planned()["release blur"].config["draws"] == 1
    declared = planned({"lane": "declared"})
    assert declared["release blur"].config["draws"] == {"development": 2, "enrolment": 2}
    again = declared["release again blur"].config
    assert (again["draws"], again["parts"], again["subset"]) == (3, ["probe"], "one")
    assert declared["score redraw on blur"].config["draws"] == 3


def test_a_method_without_a_claim_may_say_that_its_release_is_random(planned):
    stages = planned({"random_release": True})
    assert stages["release blur"].config["draws"] == {"development": 2, "enrolment": 2}
    assert stages["release again blur"].config["draws"] == 3 == stages["score redraw on blur"].config["draws"]
    assert planned({"random_release": False})["release blur"].config["draws"] == 1
    said = {}
    for name in ("minusface", "controlled", "blur", "pixelate"):
        session = Session()
        session.load({"name": name, "variant": None, "profile": "tiny"}, {})
        said[name] = session.facts({}, {})[0]["random_release"]
    assert said == {"minusface": True, "controlled": False, "blur": False, "pixelate": False}


def test_a_name_in_via_that_is_nothing_is_refused(planned):
    with pytest.raises(ConfigError, match="Did you mean plr"):
        planned(via=["plrr"])


def test_the_second_run_of_a_row_has_other_seeds_all_along(monkeypatch, tmp_path):
    monkeypatch.setattr(planning, "known_facts", lambda spec, work: {**FACTS, "lane": "declared"})
    chosen = LONG.model_copy(update={"methods": ["blur"], "again": "blur"})
    plan = make_plan(Request(chosen), WorkFolder(tmp_path))
    first, again = ([s for s in plan.scores if s.config["variant"] == v and s.config["attack"] == "plr"
                     and s.config["via"] == "direct"] for v in (None, "again"))
    assert len(first) == len(again) == 1 and again[0].config["control"] == "repeat"
    shared = {s.title for s in first[0].all() if s.digest in {t.digest for t in again[0].all()}}
    assert shared == {"prepare blocks", "asset identity_eval"}  # the data and the attacker's start, nothing else
    assert again[0].config["digest"] == first[0].config["digest"]


# ---- one run -------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def cells(tmp_path_factory, plugins):
    work = tmp_path_factory.mktemp("long") / "work"
    run = start("run", PLUGINS / "long.toml", "--workdir", work, "--jobs", 2, cwd=work.parent)
    out, err = run.communicate(timeout=900)
    assert run.returncode == 0, out[-3000:] + err[-2000:]
    return work, store.read_cells(work / "veilbench.duckdb")


def one(cells, method, **wanted):
    hits = [c for c in cells if c["method"] == method and all(c[k] == v for k, v in wanted.items())]
    assert len(hits) == 1, (method, wanted, len(hits))
    return hits[0]


def test_every_column_has_a_number_or_says_why_not(cells):
    work, found = cells
    wrong = [(c["method"], c["metric"], c["via"], c["status"], c["text"]) for c in found
             if c["status"] not in ("ok", "indicative", "not_measurable", "weights missing: i3d")
             and not (c["metric"] in ("tar", "dir", "realised_far") and c["status"] == "undefined")]
    assert not wrong
    assert {c["status"] for c in found if c["evaluator"] == "i3d"} == {"weights missing: i3d"}
    assert store.check(WorkFolder(work), work / "veilbench.duckdb") == []


def test_the_controls_of_the_clip_attackers_and_what_recovery_keeps(cells):
    _, found = cells
    for attack in ("cplr", "vplr", "redraw"):
        assert one(found, "original", attack=attack, via="direct")["value"] >= 0.9
        black = one(found, "blackout", attack=attack, via="direct")
        assert black["value"] == pytest.approx(black["chance"], abs=0.35)
    assert one(found, "blackout", metric="psnr_recovered")["value"] < one(found, "original", metric="psnr_recovered")[
        "value"]
    assert one(found, "original", metric="fd_id", via="direct")["value"] == pytest.approx(0, abs=1e-6)
    assert one(found, "original", metric="fd_id_pr", via="recover_unet")["value"] is not None


def test_a_recovery_stands_beside_a_copy_and_the_mean_face(cells):
    work, found = cells
    rows = [c for c in found if c["metric"] == "psnr_recovered"]
    assert len(rows) == 3 and len({c["details"]["guesses"]["mean_face"]["value"] for c in rows}) == 1
    for cell in rows:
        for guess in cell["details"]["guesses"].values():
            assert guess["apart"] == pytest.approx(cell["value"] - guess["value"])  # same clips, same people
    copy = one(found, "original", metric="psnr_recovered")["details"]["guesses"]["copied"]
    assert copy["value"] == 100 and copy["apart"] <= 0
    face = one(found, "original", metric="psnr_recovered")["details"]["guesses"]["mean_face"]
    assert face["value"] == pytest.approx(mean_face_psnr(work), abs=0.05)  # that one is rounded to whole levels


def mean_face_psnr(work):
    """Recomputed from the prepared data: mean over people of 10 log10(255^2 / MSE), a clip of each probe video."""
    data = Clips(next(iter(WorkFolder(work).finished("clips")))["folder"])
    clips = [data.video(row).frames[at:at + 16] for row in data.rows("train") for at in range(0, row.frames, 16)]
    face = np.mean([clip.mean(axis=0) for clip in clips], axis=0)
    derived = open_release(next(iter(WorkFolder(work).finished("derive")))["folder"], role="probe")
    first = {row.video: data.video(row).frames[:16].astype(float) for row in data.rows("test")}
    people = {}
    for item in derived:
        mse = ((first[item.video] - face) ** 2).mean(axis=(1, 2, 3))
        people.setdefault(item.person, []).append((10 * np.log10(255 ** 2 / mse)).mean())
    return np.mean([np.mean(values) for values in people.values()])


def test_redraw_without_noise_equals_plr(cells):
    _, found = cells
    for method in ("original", "blackout"):
        again, once = (one(found, method, attack=a, via="direct") for a in ("redraw", "plr"))
        assert (again["value"], again["lo"], again["n"]) == (once["value"], once["lo"], once["n"])


def test_a_redrawn_release_costs_its_draws_and_its_ceiling_says_so(cells):
    _, found = cells
    once, again = (one(found, "dp_latent", attack=a, via="direct") for a in ("plr", "redraw"))
    assert again["draws"] == 3 and again["ceiling"] > once["ceiling"] > once["chance"]
    clip, video = (one(found, "dp_latent", attack=a, via="direct") for a in ("cplr", "vplr"))
    assert video["ceiling"] > clip["ceiling"]  # a video of two clips gives away more than one clip
    assert one(found, "dp_latent", attack="plr", via="recover_unet")["ceiling"] < video["ceiling"]  # one clip a trial


def test_a_derived_release_names_nobody_and_holds_one_clip_a_video(cells):
    work, _ = cells
    folders = [r["folder"] for r in WorkFolder(work).finished("derive")]
    assert len(folders) == 3
    for folder in folders:
        items = open_release(folder)
        assert {i.clip for i in items} == {0} and {i.role for i in items} == {"enrolment", "probe"}
        manifest = pq.read_table(folder / "release" / "manifest.parquet")
        assert set(manifest.column_names) == {"id", "draw", "clip", "frames", "fps", "file", "sha256"}
        said = (folder / "release" / "release.json").read_text()
        assert json.loads(said)["via"] == "recover_unet" and "person-" not in said
    assert {"recover_unet", "cplr"} <= set(registry.names("attacks"))
