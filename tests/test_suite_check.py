"""What is refused before anything runs, with a sentence: suites and plug-ins that could not be measured."""

from __future__ import annotations

import os

import pytest

from bench import registry
from bench.errors import ConfigError, PluginError
from bench.registry import Spec
from bench.run import suite
from bench.run.suite_check import check, check_plugin

COLUMN = 'Column(id="{id}", unit="1", better="none", low=0, high=1, title="A number"{more})'
HEAD = "from bench import *\n\n@{kind}(\"{name}\")\nclass A({base}):\n    \"\"\"A fault.\"\"\"\n"
THREAT = '    threat = ThreatModel(knows="all", reads="clip", trained_on="nothing")\n'
MATCH = "".join(f"    def {n}(self, *given): ...\n" for n in ("fit", "embed", "state", "load"))
RECOVER = MATCH.replace("embed", "recover")
SETS = "    def embed(self, clip): ...\n    def distance(self, *sets): ...\n"
VALUES = "    def values(self, original, released): ...\n"


def columns(*ids: str, more: str = "") -> str:
    return f"    columns = ({', '.join(COLUMN.format(id=i, more=more) for i in ids)},)\n"


FAULTS = {  # name: (kind, base class, body, what the message says)
    "no_threat": ("attack", "Match", columns("eer") + MATCH, "no threat model"),
    "no_state": ("attack", "Recover", THREAT + RECOVER.replace("def state", "def stat"), "does not write `state`"),
    "no_score": ("attack", "Identify", THREAT + columns("top1") + RECOVER, "does not write `score`"),
    "no_values": ("metric", "VideoMetric", columns("a"), "does not write `values`"),
    "no_columns": ("metric", "SetMetric", SETS, "declares no column"),
    "two_numbers": ("metric", "SetMetric", SETS + columns("a", "b", more=', statistic="jackknife"'), "one number"),
    "two_ids": ("metric", "VideoMetric", VALUES + columns("a", "a"), "two columns of one id"),
    "plain_mean": ("metric", "SetMetric", SETS + columns("a"), "statistic='mean'.*Possible: 'jackknife'"),
    "wrong_word": ("metric", "VideoMetric", VALUES + columns("a").replace('"none"', '"up"'), "better='up'.*'higher'"),
    "wrong_id": ("attack", "Match", THREAT + MATCH + columns("auc"), "id='auc'.*Possible: 'eer', 'tar'"),
    "no_rate": ("attack", "Match", THREAT + MATCH + columns("tar"), "without its false accept rate"),
    "no_network": ("attack", "Recover", THREAT + RECOVER + '    assets = ("identity_evl",)\n',
                   "identity_evl.*identity_eval"),
    "of_methods": ("attack", "Recover", THREAT + RECOVER + '    assets = ("identity_method",)\n', "belong to methods"),
}


@pytest.fixture(scope="module")
def faults(tmp_path_factory, plugins):
    """Plug-in files with one fault each, known while this file is tested."""
    folder, patch = tmp_path_factory.mktemp("faults"), pytest.MonkeyPatch()
    for name, (kind, base, body, _) in FAULTS.items():
        (folder / f"{name}.py").write_text(HEAD.format(kind=kind, name=name, base=base) + body, encoding="utf-8")
    patch.setenv(registry.EXTRA, os.pathsep.join([os.environ[registry.EXTRA], *map(str, folder.iterdir())]))
    registry._locations.cache_clear()
    yield
    patch.undo()
    registry._locations.cache_clear()


@pytest.mark.parametrize("name", FAULTS)
def test_a_plugin_that_could_not_be_measured_is_refused_by_name(name, faults):
    kind, _, _, said = FAULTS[name]
    with pytest.raises(PluginError, match=f"{kind} '{name}'.*{said}"):
        check_plugin(f"{kind}s", Spec(name))


@pytest.mark.parametrize("kind, name", [(k, n) for k in ("attacks", "metrics") for n in registry.names(k)])
def test_the_plugins_of_the_repository_pass(kind, name):
    for variant in (None, *getattr(registry.get(kind, name), "variants", {})):
        check_plugin(kind, Spec(name, variant))


def made(**fields) -> suite.Suite:
    return suite.Suite(**{"title": "t", "dataset": "blocks", "methods": ["original"], "name": "mine", **fields})


def checked(**fields) -> None:
    asked = made(**fields)
    check(asked, [Spec.parse(a) for a in asked.attacks], [Spec.parse(m) for m in asked.metrics])


@pytest.mark.parametrize("fields, said", [
    ({"again": "blur"}, "runs 'blur' again, which is none"), ({"via": ["pls"]}, "no attack and no metric.*plr"),
    ({"via": ["fer@x3d"]}, "'fer@x3d' in `via`"), ({"via": ["latent_llr"]}, "in `via`"),
    ({"via": ["scales"]}, "in `via`"), ({"via": ["recover_unet"]}, "in `via`"),
    ({"attacks": ["plr"], "budget": {"plr": {"epoch": 3}}}, r"'epoch', which plr does not have.*epochs"),
    ({"attacks": ["plr"], "budget": {"plr": {"via": {"epoch": 3}}}}, r"'epoch', which plr does not have.*epochs"),
    ({"attacks": ["plr"], "budget": {"plr": {"via": 3}}}, "via = 3.*table"),
    ({"attacks": ["open_set"], "budget": {"open_set": {"via": {"epochs": 3}}}}, "via = .*identifies"),
    ({"metrics": ["psnr_released"], "budget": {"psnr_released": {"a": 1}}}, "does not have"),
    ({"metrics": ["fer@x3d"], "budget": {"fer": {"epochs": 1}}}, r'runs fer@x3d.*\[budget."fer@x3d"\]'),
    ({"budget": {"plt": {"epochs": 1}}}, "budget for 'plt'.*plr"),
    ({"budget": {"identity_eval": {"epoch": 1}}}, "Only `epochs`")])
def test_a_field_that_would_be_ignored_is_refused(fields, said):
    with pytest.raises(ConfigError, match=said):
        checked(**fields)


def test_what_a_suite_may_say_passes():
    checked(again="original", via=["plr", "fd_id@synth", "psnr_recovered"], attacks=["recover_unet", "plr"],
            budget={"plr": {"epochs": 1}, "open_set": {"epochs": 1}, "identity_eval": {"epochs": 2}})
    for name in suite.names():
        asked = suite.load(name)
        check(asked, [Spec.parse(a) for a in asked.attacks], [Spec.parse(m) for m in asked.metrics])


@pytest.mark.parametrize("line, said", [
    ("methods = []", "at least one name"), ("methods = 'blur'", "at least one name"), ("seeds = []", "at least one"),
    ("draws = 0", "from 1"), ("draws = { probes = 2 }", "development = 2"), ("redraws = 0", "redraws"),
    ("recovered = 'two'", "left out"), ("name = 'x'", "called as its file is"),
    ("budget = { plr = 3 }", "budget.plr = 3"), ("vai = []", "'vai' is no field.*via"), ("canvas_px = 3", "canvas_px")])
def test_a_field_that_does_not_fit_is_named_with_what_fits(tmp_path, line, said):
    base = {"title": "'t'", "dataset": "'blocks'", "methods": "['original']"}
    key, _, value = line.partition(" = ")
    path = tmp_path / "mine.toml"
    path.write_text("".join(f"{k} = {v}\n" for k, v in {**base, key: value}.items()), encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        suite.load(str(path))


def test_a_missing_field_is_called_missing_and_a_missing_file_absent(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("title = 't'\ndataset = 'blocks'\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="'methods' is missing"):
        suite.load(str(path))
    with pytest.raises(ConfigError, match="no suite file .*absent.toml"):
        suite.load(str(tmp_path / "absent.toml"))


# ---- a suite like another ------------------------------------------------------------------------------------------

BASELINES = {"spact", "ted_spad", "adversarial_supervised", "controlled", "minusface", "face_swap",
             "knowledge_priors_style", "deepprivacy_style", "pi_net_style", "video_dprp_style"}


def test_the_face_baselines_are_measured_as_mini_measures():
    """Whatever makes a stage is mini's, so that both suites share its originals, controls and networks."""
    mini, faces, full = (suite.load(name) for name in ("mini", "mini-faces", "full"))
    own = {"title", "name", "like", "methods", "seconds"}
    assert faces.model_dump(exclude=own) == mini.model_dump(exclude=own) and len(mini.attacks) > 8
    assert mini.seconds.items() <= faces.seconds.items()
    for asked in (faces, full):
        assert BASELINES <= {Spec.parse(m).name for m in asked.methods}
        assert {"original", "blackout", "spact@no_privacy", "controlled@stage1"} <= set(asked.methods)


def test_what_a_suite_says_itself_goes_before_what_it_is_like(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("title = 't'\nlike = 'demo'\nattacks = ['plr']\nseeds = [1, 2]\n", encoding="utf-8")
    mine, demo = suite.load(str(path)), suite.load("demo")
    assert (mine.title, mine.attacks, mine.seeds, mine.name) == ("t", ["plr"], [1, 2], "mine")
    assert (mine.methods, mine.metrics, mine.budget) == (demo.methods, demo.metrics, demo.budget)


@pytest.mark.parametrize("like, said", [
    ("'dmeo'", "no suite called 'dmeo'"), ("'mini-faces'", "itself like 'mini'.*like = 'mini'"),
    ("3", "like = 3 does not fit")])
def test_a_suite_like_nothing_is_refused(tmp_path, like, said):
    path = tmp_path / "mine.toml"
    path.write_text(f"title = 't'\ndataset = 'blocks'\nmethods = ['original']\nlike = {like}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        suite.load(str(path))


@pytest.mark.parametrize("name, dataset, message", [
    ("traffic-mini", "synthfaces_demo", "measures reports, and synthfaces_demo gives videos of faces"),
    ("demo", "sumo_crossing", "measures videos, and sumo_crossing gives reports of traffic")])
def test_the_two_tracks_are_not_mixed(name, dataset, message):
    chosen = suite.load(name).model_copy(update={"dataset": dataset})
    with pytest.raises(ConfigError, match=message):
        check(chosen, [Spec.parse(a) for a in chosen.attacks], [Spec.parse(m) for m in chosen.metrics])
