"""The command line: every command has help, every mistake one paragraph and exit code 2."""

from __future__ import annotations

import json
import re

import pytest
from conftest import SUITE, start

from bench import registry
from bench.cli import LISTS

COMMANDS = [("demo",), ("doctor",), ("list",), ("data", "prepare"), ("data", "check"), ("run",), ("status",),
            ("explain",), ("reproduce",), ("release",), ("table",), ("site", "build"), ("site", "serve"),
            ("db", "rebuild"), ("db", "check"), ("db", "export"), ("db", "import")]
RUN_OPTIONS = ("--method", "--attack", "--metric", "--dataset", "--root", "--seeds", "--profile", "--executor",
               "--jobs", "--workdir", "--dry-run", "--display", "--plugin")


@pytest.mark.parametrize("words", [(), *COMMANDS, ("data",), ("site",), ("db",)], ids=" ".join)
def test_every_command_prints_help(cli, words):
    answer = cli(*words, "--help")
    assert answer.code == 0 and not answer.err
    assert re.search(" ".join(("Usage: .*", *words)), answer.out) and "Traceback" not in answer.out


def test_run_has_the_options_of_the_design(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = cli("run", "--help").out
    assert [o for o in RUN_OPTIONS if o not in text] == []


def test_the_top_level_help_names_every_command(cli):
    text = cli("--help").out
    assert [w[0] for w in COMMANDS if w[0] not in text] == []


MISTAKES = [
    (("run", "dmeo"), "Did you mean demo"), (("run", "demo", "--method", "blurr"), "Did you mean blur"),
    (("run", "demo", "--method", "blur@9"), "no variant '9'"),
    (("run", "demo", "--attack", "plr_statik"), "plr_static"),
    (("run", "demo", "--dataset", "videofolder"), "--root DIR"),
    (("run", "demo", "--dataset", "videofolder", "--root", "absent"), "There is no folder"),
    (("run", "demo", "--seeds", "1,x"), "list of whole numbers"), (("run", "demo", "--seeds", "1,1"), "repeats a seed"),
    (("run", "demo", "--profile", "huge"), "no profile"), (("run", "demo", "--executor", "ray"), "no executor"),
    (("run", "demo", "--plugin", "absent.py"), "no plug-in file"), (("list", "method"), "Did you mean methods"),
    (("table", "summary"), "veilbench demo"), (("explain", "x"), "veilbench demo"),
    (("reproduce", "x"), "veilbench demo"), (("status",), "no work folder"), (("db", "check"), "no work folder"),
    (("db", "import", "absent"), "no export"), (("data", "prepare", "synthfacs"), "Did you mean synthfaces"),
    (("data", "check", "blocks"), "no work folder"), (("site", "serve"), "veilbench site build"),
    (("release", "blur", "absent.mp4", "-o", "out.mp4"), "absent.mp4"),
    (("release", "blurr", "absent.mp4", "-o", "out.mp4"), "Did you mean blur")]


@pytest.mark.parametrize("words, said", MISTAKES, ids=[" ".join(w) for w, _ in MISTAKES])
def test_a_mistake_is_one_paragraph_and_exit_code_2(cli, words, said):
    answer = cli(*words)
    assert answer.code == 2, answer
    assert answer.err.startswith("veilbench: ") and said in answer.err
    assert len(answer.err.strip().splitlines()) == 1 and "Traceback" not in answer.err


@pytest.mark.parametrize("words", [("run",), ("nonsense",), ("run", "demo", "--nonsense"),
                                   ("run", "demo", "--jobs", "0"),
                                   ("run", "demo", "--jobs", "many"), ("table",)])
def test_a_wrong_usage_is_exit_code_2_without_traceback(cli, words):
    answer = cli(*words)
    assert answer.code == 2 and "Traceback" not in answer.err and answer.err


@pytest.mark.parametrize("words, said", [
    (("table", "sumary"), "Did you mean summary"), (("table", "summary", "--format", "xml"), "md"),
    (("table", "summary", "--dataset", "x"), "Measured: blocks"), (("explain", "blur/plr"), "veilbench table"),
    (("explain", "blur@2/plr/top1", "--format", "xml"), "--format json"),
    (("data", "check", "synthfaces"), "veilbench data prepare synthfaces"), (("reproduce", "nothing"), "No cell"),
    (("run", str(SUITE), "--display", "fancy"), "no display")])
def test_a_mistake_in_a_full_work_folder(road, copied, cli, words, said):
    answer = cli(*words, "--workdir", copied if words[0] == "run" else road)
    assert answer.code == 2 and said in answer.err and "Traceback" not in answer.err


@pytest.mark.parametrize("kind", LISTS)
def test_list_shows_every_name(cli, kind):
    answer = cli("list", kind)
    assert answer.code == 0
    names = [line.split()[0] for line in answer.out.splitlines()]
    if kind in registry.KINDS:
        assert names == registry.names(kind)
    else:
        assert len(names) == len(set(names)) >= 1
    assert all(len(line.split()) > 1 for line in answer.out.splitlines()), "a name and what it is"


def test_list_alone_shows_every_kind(cli):
    assert [line for line in cli("list").out.splitlines() if line in LISTS] == list(LISTS)


def test_a_dry_run_runs_nothing(road, copied, cli):
    before = sorted(copied.rglob("*"))
    answer = cli("run", SUITE, "--method", "pixelate", "--workdir", copied, "--dry-run")
    assert answer.code == 0
    lines = answer.out.splitlines()[1:]
    assert "todo  release pixelate" in lines and "done  release original" in lines and len(lines) == 35
    new = [p for p in sorted(copied.rglob("*")) if p not in before]
    assert all("facts" in p.parts for p in new), "only what a method says about itself may be kept"


def test_display_json_is_one_object_a_line(copied, cli):
    answer = cli("run", SUITE, "--method", "pixelate", "--metric", "psnr_released", "--workdir", copied, "--display",
                 "json")
    assert answer.code == 0
    events = [json.loads(line) for line in answer.out.splitlines()]
    assert all(set(e) == {"event", "kind", "stage", "digest", "seconds", "text"} for e in events)
    finished = [e["stage"] for e in events if e["event"] == "done"]
    assert finished == ["release pixelate", "metric psnr_released on pixelate", "score psnr_released on pixelate"]
    assert {e["event"] for e in events} <= {"cached", "started", "progress", "done"}
    quiet = cli("run", SUITE, "--method", "pixelate", "--metric", "psnr_released", "--workdir", copied, "--display",
                "none")
    assert quiet.code == 0 and quiet.out == ""


def test_seeds_of_the_command_line_reach_the_plan(road, copied, cli):
    lines = cli("run", SUITE, "--seeds", "42,43", "--attack", "plr", "--workdir", copied, "--dry-run").out.splitlines()
    assert lines.count("done  train plr on original") == 1 and lines.count("todo  train plr on original") == 1
    lines = cli("run", SUITE, "--seeds", "43", "--attack", "plr", "--workdir", copied, "--dry-run").out.splitlines()
    assert "done  release original" in lines and "todo  train plr on original" in lines  # attackers' seeds alone


def test_a_dataset_is_prepared_and_checked(cli, tmp_path):
    prepared = cli("data", "prepare", "blocks", "--workdir", tmp_path / "w", "--display", "plain")
    assert prepared.code == 0 and "Next: `veilbench data check blocks`" in prepared.out
    good = cli("data", "check", "blocks", "--workdir", tmp_path / "w")
    assert good.code == 0 and "every file is as its manifest says" in good.out
    media = next((tmp_path / "w").glob("stages/clips/*/media/00007.mkv"))
    media.write_bytes(media.read_bytes()[:-3])
    bad = cli("data", "check", "blocks", "--workdir", tmp_path / "w")
    assert bad.code == 1 and "00007.mkv differs from its digest" in bad.out


def test_the_real_process_ends_with_the_code(tmp_path):
    run = start("run", "dmeo", cwd=tmp_path)
    out, err = run.communicate(timeout=120)
    assert run.returncode == 2 and out == "" and err.startswith("veilbench: ") and len(err.splitlines()) == 1
