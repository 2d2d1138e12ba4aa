"""The paper's pictures: which stages they are drawn from, what they show, and that the same folder gives the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bench.video as video_io
from bench import figures, seeds
from bench.data.clips import Clips
from bench.data.splits import hashed
from bench.paper_tables import PAPER_FIGURES
from bench.run.cache import WorkFolder, write_json
from bench.run.views import save_tensors

BASE = {"variant": None, "dataset": "blocks", "profile": "tiny", "via": "direct", "attack": None, "evaluator": None,
        "metric": "psnr_released", "value": 20.0, "n": 12, "people": 3, "draws": 1, "seeds": [42], "status": "ok",
        "digest": "feedfacecafe", "split": "0123456789ab", "decoding": "assembled", "params": None}


def stage(work: WorkFolder, kind: str, digest: str, config=None, inputs=None) -> Path:
    """A finished stage without content."""
    folder = work.stage(kind, digest)
    folder.mkdir(parents=True)
    write_json(folder / "stage.json", {"kind": kind, "digest": digest, "title": kind,
                                       "identity": {"config": config or {}, "inputs": inputs or {}}})
    return folder


def released(work: WorkFolder, method: str, variant: str | None, clips: Clips, shade: int) -> dict:
    """A release of all probe videos as frames of one grey, the score behind it, and its cell."""
    name, kind = f"{method}{variant or ''}", "enforced" if method == "tadp" else "release"
    folder = stage(work, kind, f"{kind}-{name}", {
        "method": method, "variant": variant, "decoding": "assembled", "parts": ["development", "probe"], "seed": 42,
        "profile": "tiny"}, {"clips": "clips"})
    records, known = [], []
    for k, row in enumerate(clips.rows("test", role="probe")):
        video_io.write_lossless(folder / "release" / "media" / f"{k}.mkv",
                                np.full((row.frames, 16, 16, 3), shade + k, np.uint8), 25)
        records.append({"id": k, "file": f"{k}.mkv", "frames": row.frames, "draw": 0, "clip": -1})
        known.append({"id": k, "video": row.video, "person": row.person, "label": row.label, "part": "test",
                      "role": "probe"})
    (folder / "vault").mkdir()
    pq.write_table(pa.Table.from_pylist(records), folder / "release" / "manifest.parquet")
    pq.write_table(pa.Table.from_pylist(known), folder / "vault" / "idmap.parquet")
    write_json(folder / "release" / "release.json", {})
    stage(work, "score", f"score-{name}", inputs={"trials:42": f"{kind}-{name}"})
    return {**BASE, "method": method, "variant": variant, "score": f"score-{name}"}


@pytest.fixture
def work(small, tmp_path):
    """A folder with the blocks dataset, publishable, and three releases of it; their cells."""
    work = WorkFolder(tmp_path / "work")
    folder = Path(shutil.copytree(small, work.stage("clips", "clips")))
    info = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    write_json(folder / "dataset.json", info | {"publishable": True})
    write_json(folder / "stage.json", {"kind": "clips", "digest": "clips", "identity": {"config": {}, "inputs": {}}})
    clips = Clips(folder)
    return work, [released(work, *row, clips, shade) for row, shade in (
        (("original", None), 10), (("tadp", "no_noise"), 90), (("tadp", None), 170))]


def drawn(name, cells, work, out) -> list[str]:
    return list(figures.draw(name, cells, work, out))


def test_every_figure_has_a_title_and_somebody_who_draws_it():
    assert set(PAPER_FIGURES) == set(figures._FIGURES)


def test_a_sequence_holds_one_video_row_by_row_in_the_order_of_the_stages(work, tmp_path):
    folder, cells = work
    lines = drawn("tadp-fig3", cells[::-1], folder, tmp_path)
    path = tmp_path / "tadp-fig3-blocks-tiny.png"
    assert f"Wrote {path}" in lines and "rows original, tadp@no_noise, tadp" in lines[0]
    assert any("seed 42" in line and "profile tiny" in line for line in lines) and "split" in lines[-1]
    picture = cv2.imread(str(path))
    rows = Clips(folder.stage("clips", "clips")).rows("test", role="probe")
    place = min(range(len(rows)), key=lambda k: hashed(rows[k].video))
    frames = min(figures.FRAMES, rows[place].frames)
    lines_of_one = -(-frames // figures.PER_LINE)
    block = figures.LABEL_PX + lines_of_one * (32 + figures.GAP_PX)  # 16 px, drawn twice as large
    assert picture.shape == (3 * block, figures.PER_LINE * (32 + figures.GAP_PX), 3)
    for k, shade in enumerate((10, 90, 170)):
        assert (picture[k * block + figures.LABEL_PX:][:32, :32] == shade + place).all()
    first = path.read_bytes()
    drawn("tadp-fig3", cells, folder, tmp_path)
    assert path.read_bytes() == first


def test_frames_stand_in_reading_order():
    frames = np.arange(16, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 3), np.uint8)
    picture = figures.sequence([("a", frames)])[figures.LABEL_PX:]
    step = 8 + figures.GAP_PX
    assert [picture[k // 8 * step, k % 8 * step, 0] for k in range(16)] == list(range(16))


def test_no_frame_of_a_dataset_that_may_not_be_shown(work, tmp_path):
    folder, cells = work
    path = folder.stage("clips", "clips") / "dataset.json"
    write_json(path, json.loads(path.read_text(encoding="utf-8")) | {"publishable": False})
    lines = drawn("tadp-fig3", cells, folder, tmp_path / "out")
    assert len(lines) == 1 and "licence" in lines[0] and not (tmp_path / "out").exists()


def test_a_row_that_was_not_released_is_named_and_nothing_measured_names_the_command(work, tmp_path):
    folder, cells = work
    assert "not released here: tadp@no_noise" in drawn("tadp-fig3", [cells[0], cells[2]], folder, tmp_path)[0]
    for name in PAPER_FIGURES:
        assert drawn(name, cells[:1], folder, tmp_path) == [
            f"{name}: nothing to draw yet. To measure: veilbench run tadp"]


# ---- identity features ---------------------------------------------------------------------------------------------

def embedded(work: WorkFolder, name: str, rows: np.ndarray, keys) -> None:
    folder = stage(work, "embed", name)
    save_tensors(folder / "features.safetensors", {"features": rows})
    write_json(folder / "clips.json", keys)


@pytest.fixture
def recovered(tmp_path):
    """Originals in one place of identity space, released and recovered clips together in another."""
    work, rng = WorkFolder(tmp_path / "work"), seeds.derive(3, "clouds")
    keys = [[f"v{k}", 0] for k in range(40)]
    embedded(work, "originals", rng.normal(0, 0.1, (40, 8)) + np.eye(8)[0], keys)
    embedded(work, "direct", rng.normal(0, 0.1, (40, 8)) - np.eye(8)[0], keys)
    embedded(work, "features", rng.normal(0, 0.1, (30, 8)) - np.eye(8)[0], keys[:30])  # one clip a video recovered
    stage(work, "metric", "metric", {"seed": 42}, {k: k for k, _, _ in figures.SETS})
    stage(work, "score", "score", inputs={"clips": "x", "trials:42": "metric"})
    return work, {**BASE, "method": "tadp", "metric": "fd_id", "evaluator": "synth", "via": "recover_unet",
                  "score": "score"}


def test_features_are_placed_as_they_lie_and_the_same_way_again(recovered, tmp_path):
    work, cell = recovered
    lines = drawn("tadp-fig4", [cell], work, tmp_path)
    path = tmp_path / "tadp-fig4-blocks-tiny-synth.svg"
    assert f"Wrote {path}" in lines and "30 clips in each set" in lines[0] and "people 3" in lines[2]
    text = path.read_text(encoding="utf-8")
    assert text.count("<circle") == text.count('height="6"') == text.count("<path") == 31  # one each in the legend
    assert "nothing to draw" in drawn("tadp-fig5", [cell], work, tmp_path)[0]
    sets, seed = figures._sets(work, cell)
    originals, direct, features = placed = figures.place([sets[k] for k, _, _ in figures.SETS], seed)
    assert figures.svg(text.partition("<title>")[2].partition("</title>")[0], placed) == text
    apart = np.linalg.norm(originals.mean(0) - direct.mean(0))
    assert apart > 3 * np.linalg.norm(direct.mean(0) - features.mean(0))
    assert apart > 2 * np.linalg.norm(direct - direct.mean(0), axis=1).mean()


def test_a_figure_is_a_file_and_a_table_is_printed(cli, monkeypatch):
    monkeypatch.setattr("bench.commands.store.read_cells", lambda path, **more: [])
    assert "nothing to draw yet" in cli("table", "tadp-fig5").out
    assert cli("table", "tadp-fig5", "--format", "csv").code == 2
    answer = cli("table", "tadp-3", "--out", "x")
    assert answer.code == 2 and "is printed" in answer.err
