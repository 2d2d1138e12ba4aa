"""From a suite to stages: controls, options, unknown names, and what is refused before anything runs."""

from __future__ import annotations

import pytest
from conftest import SUITE

from bench.errors import ConfigError, DataError
from bench.run import plan as planning
from bench.run import suite
from bench.run.cache import WorkFolder
from bench.run.plan import Request, make_plan, narrowed, with_options
from bench.run.rows import fingerprint

FACTS = {"lane": "none", "needs": [], "assets": [], "fits": False, "memory_between_clips": False,
         "control": None, "doc": "", "variants": [],
         "claim": {"unit": "none", "adjacency": "none", "horizon": "none", "delta": 0.0, "epsilon": "inf"}}
BLOCKS = suite.load(str(SUITE))


@pytest.fixture
def plan(monkeypatch, tmp_path):
    facts: dict = {}
    monkeypatch.setattr(planning, "known_facts", lambda spec, work: {**FACTS, **facts.get(str(spec), {})})

    def make(changes=None, **request):
        return make_plan(Request(BLOCKS.model_copy(update=changes or {}), **request), WorkFolder(tmp_path))

    make.facts = facts
    return make


def titles(plan, start=""):
    return [s.title for s in plan.stages if s.title.startswith(start)]


def test_every_stage_comes_after_its_inputs(plan):
    seen: set[str] = set()
    for stage in plan().stages:
        assert {s.digest for s in stage.inputs.values()} <= seen
        seen.add(stage.digest)
    assert len(plan().scores) == 3 * 4


def test_a_chosen_method_brings_the_controls(plan):
    assert titles(plan(methods=["pixelate"]), "release") == ["release original", "release blackout",
                                                             "release pixelate"]
    assert titles(plan(methods=["original"]), "release") == ["release original", "release blackout"]
    assert titles(plan(), "release") == ["release original", "release blackout", "release blur@2"]


def test_attacks_and_metrics_narrow(plan):
    assert {s.title.split()[1] for s in plan(attacks=["plr"]).scores} == {"plr"}
    assert {s.title.split()[1] for s in plan(metrics=["psnr_released"]).scores} == {"psnr_released"}
    assert not [s for s in plan(attacks=["plr"]).stages if s.title == "asset expression_eval"], "assets are lazy"
    assert not [s for s in plan(metrics=["psnr_released"]).stages if s.title.startswith("asset ")]


def test_a_row_may_carry_some_columns_only(plan):
    def rows(**request):
        return sorted((s.config["method"], s.config.get("metric") or s.config["attack"])
                      for s in plan({"only": {"blur@*": ["psnr_released"]}}, **request).scores)

    full = {(s.config["method"], s.config.get("metric") or s.config["attack"]) for s in plan().scores}
    assert set(rows()) == {r for r in full if r[0] != "blur"} | {("blur", "psnr_released")}
    assert rows(methods=["blur@2"], attacks=["plr"]) == [("blackout", "plr"), ("original", "plr")]
    for wrong, said in (({"blurr@*": []}, "none of its rows"), ({"blur@*": ["psnr"]}, "none of its attacks")):
        with pytest.raises(ConfigError, match=said):
            plan({"only": wrong})


def test_every_attacker_seed_is_trained_and_a_pure_metric_is_not_repeated(plan):
    made = plan({"seeds": [1, 2, 3]}, methods=["original"])
    by_title = {s.title: s for s in made.scores}
    assert set(by_title["score plr on original"].inputs) == {"clips", "trials:1", "trials:2", "trials:3"}
    assert set(by_title["score fer@x3d on original"].inputs) == {"clips", "trials:1", "trials:2", "trials:3"}
    assert set(by_title["score psnr_released on original"].inputs) == {"clips", "trials:1"}
    assert by_title["score psnr_released on original"].config["seeds"] == [1]
    assert len(titles(made, "release original")) == 1


def test_a_static_attacker_never_sees_a_release(plan):
    trained = {s.title: s for s in plan().stages if s.kind == "train"}
    assert "release" not in trained["train plr_static on originals"].inputs
    assert trained["train plr on blur@2"].inputs["release"].title == "release blur@2"
    assert len(trained) == 4


def test_a_method_that_fits_gets_a_fit_stage_and_its_assets(plan):
    plan.facts["learner"] = {"fits": True, "assets": ["identity_method"]}
    made = plan(methods=["learner"], attacks=["plr"])
    fit = next(s for s in made.stages if s.kind == "fit")
    assert set(fit.inputs) == {"clips", "identity_method"} and fit.inputs["clips"].title == "prepare blocks"
    assert next(s for s in made.stages if s.title == "release learner").inputs["fit"] is fit
    assert fit.inputs["identity_method"].inputs["clips"].title == "prepare blocks_public"
    plan.facts["learner"] = {"fits": True, "assets": ["identity_methd"]}
    with pytest.raises(ConfigError, match="no asset called.*Did you mean identity_method"):
        plan(methods=["learner"])


@pytest.mark.parametrize("request_, said", [
    ({"methods": ["blurr"]}, "no method called 'blurr'.*Did you mean blur"),
    ({"attacks": ["plr_stat"]}, "no attack called.*plr_static"), ({"metrics": ["fer@x4d"]}, "no variant.*x3d"),
    ({"metrics": ["mse"]}, "no metric called"), ({"attacks": ["plr@x"]}, "no variant")])
def test_unknown_names_are_refused_before_anything_runs(plan, request_, said):
    with pytest.raises(ConfigError, match=said):
        plan(**request_)


def test_a_dataset_of_files_needs_a_root_that_is_there(plan, tmp_path):
    with pytest.raises(ConfigError, match="needs a folder"):
        plan({"dataset": "videofolder"})
    with pytest.raises(DataError, match="There is no folder"):
        plan({"dataset": "videofolder"}, root=tmp_path / "absent")
    with pytest.raises(DataError):
        fingerprint(tmp_path / "absent")


def test_options_change_the_suite_and_are_checked():
    changed = with_options(BLOCKS, dataset="synthfaces", seeds=[1, 2], profile="tiny")
    assert (changed.dataset, changed.seeds, changed.profile, changed.methods) == ("synthfaces", [1, 2], "tiny",
                                                                                  BLOCKS.methods)
    assert with_options(BLOCKS) == BLOCKS
    paper = with_options(BLOCKS, profile="paper")
    assert (paper.profile, paper.canvas_px, BLOCKS.canvas_px) == ("paper", 256, 64)
    assert with_options(paper, profile="paper") == paper
    with pytest.raises(ConfigError, match="no dataset called"):
        with_options(BLOCKS, dataset="synthfacs")


def test_narrowed_keeps_what_a_score_needs(plan):
    made = plan()
    wanted = next(s for s in made.scores if s.title == "score psnr_released on blur@2")
    assert titles(narrowed(made, [wanted])) == ["prepare blocks", "release blur@2", "metric psnr_released on blur@2",
                                                "score psnr_released on blur@2"]


@pytest.mark.parametrize("text, said", [
    ("title = 'x'\n", "dataset"), ("title = ", "is not TOML"), ("titel = 'x'\ndataset='a'\nmethods=[]", "titel"),
    ("title='x'\ndataset='a'\nmethods=[]\nprofile='huge'", "profile")])
def test_a_bad_suite_file_says_what_is_wrong(tmp_path, text, said):
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said) as caught:
        suite.load(str(path))
    assert "canvas_px" not in str(caught.value) and "Undefined" not in str(caught.value), "only what the file says"


def test_unknown_suites_suggest_and_committed_ones_load():
    with pytest.raises(ConfigError, match="Did you mean demo"):
        suite.load("dmeo")
    assert "demo" in suite.names()
    for name in suite.names():
        assert suite.load(name).name == name


def test_a_run_remembers_a_suite_given_by_its_path(tmp_path, road):
    assert suite.recall(road, "blocks") == BLOCKS
    assert suite.recall(tmp_path, "demo") == suite.load("demo")
    with pytest.raises(ConfigError):
        suite.recall(tmp_path, "blocks")
