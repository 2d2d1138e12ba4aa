"""Where a number comes from, and that it comes again to the last bit."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
from conftest import SUITE

from bench import registry, store
from bench.run.cache import WorkFolder, write_json


def test_a_number_is_reproduced_to_the_last_bit(copied, cli):
    answer = cli("reproduce", "blur@2/plr/top1", "--workdir", copied, "--display", "none")
    assert answer.code == 0 and "Reproduced: " in answer.out
    again = next((copied / "reproduce").iterdir())
    work, fresh = WorkFolder(copied), WorkFolder(again)
    assert {r["title"] for r in fresh.finished("release")} == {"release blur@2"}
    for kind in ("clips", "asset"):  # checked by their digest, not made again
        assert all(r["folder"].is_symlink() for r in fresh.finished(kind))
    for record in fresh.finished("train"):
        assert not record["folder"].is_symlink()
        first = work.stage("train", record["digest"]) / "state.safetensors"
        assert first.read_bytes() == (record["folder"] / "state.safetensors").read_bytes()


def test_explain_names_the_command_that_makes_the_number_again(road, cli, monkeypatch):
    last = cli("explain", "blur@2/plr/top1", "--workdir", road).out.splitlines()[-1]
    identity = store.find_cell(store.read_cells(road / "veilbench.duckdb"), "blur@2/plr/top1")["id"]
    assert last == f"Make it again: `veilbench reproduce {identity} --workdir {road}`"
    monkeypatch.setattr(registry, "names", lambda kind: [])
    assert f"{identity} --plugin FILE --workdir" in cli("explain", "blur@2/plr/top1", "--workdir", road).out


def test_a_number_that_does_not_come_again_is_told(copied, cli):
    record = next(r for r in WorkFolder(copied).finished("score") if r["title"] == "score psnr_released on blur@2")
    cells = json.loads((record["folder"] / "cells.json").read_text())
    write_json(record["folder"] / "cells.json", [{**c, "value": c["value"] + 1e-12} for c in cells])
    assert cli("db", "rebuild", "--workdir", copied).code == 0
    answer = cli("reproduce", "blur@2/psnr_released", "--workdir", copied, "--display", "none")
    assert answer.code == 1 and "DIFFERS" in answer.out


def test_every_cell_can_be_explained(road, cli):
    for cell in store.read_cells(road / "veilbench.duckdb"):
        said = json.loads(cli("explain", cell["id"], "--workdir", road, "--format", "json").out)
        assert said["cell"]["value"] == cell["value"] and said["cell"]["id"] == cell["id"]
        kinds = [s["kind"] for s in said["stages"]]
        assert kinds[-1] == "score" and "release" in kinds and kinds.index("clips") < kinds.index("release")
        position = {s["digest"]: i for i, s in enumerate(said["stages"])}
        for stage in said["stages"]:
            assert all(position[d] < position[stage["digest"]] for d in stage["identity"]["inputs"].values())


def test_the_digests_that_are_explained_are_those_of_the_files(road, cli):
    said = json.loads(cli("explain", "original/psnr_released", "--workdir", road, "--format", "json").out)
    score = said["stages"][-1]
    folder = WorkFolder(road).stage("metric", score["identity"]["inputs"]["trials:42"])
    rows = pq.read_table(folder / "trials.parquet").num_rows
    assert rows == said["cell"]["n"] == 10 and str(SUITE.stem) == score["identity"]["config"]["suite"]
