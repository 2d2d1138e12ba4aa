"""Coders of frames and clips: what a feature depends on, its length, its codebook, and what a clip beside it gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench import seeds
from bench.method_assets import ENTRIES, train_clip_coder
from bench.nets.coders import DIM, ClipCoder, FrameCoder, as_clips, load_coder
from bench.nets.training import use_threads
from bench.public_marks import expressions


def squares(count: int, name: str) -> tuple[list[np.ndarray], list[int]]:
    """Videos (16, 64, 64, 3) of a grey square of any grey that soon becomes darker (0) or lighter (1)."""
    rng = seeds.derive(3, "squares", name)
    videos, labels = [], []
    for k in range(count):
        frames = np.full((16, 64, 64, 3), 128, np.uint8) + rng.integers(0, 9, (16, 64, 64, 3), dtype=np.uint8)
        level = int(rng.integers(70, 180))
        frames[:, 16:48, 16:48] = level
        frames[5:, 16:48, 16:48] = level + (50 if k % 2 else -50)
        videos.append(frames)
        labels.append(k % 2)
    return videos, labels


def codes(model: ClipCoder, frames: np.ndarray) -> torch.Tensor:
    with torch.inference_mode():
        return model.code(model.trunk(as_clips(torch.from_numpy(frames)[None])))[0]


@pytest.fixture(scope="module")
def trained() -> dict[str, np.ndarray]:
    use_threads()
    videos, labels = squares(48, "train")
    return train_clip_coder("toy", videos, labels, None, 24, 4, 1, lambda text: None)


def test_a_change_against_the_clip_is_named_whatever_the_grey(trained):
    model = load_coder({k: torch.from_numpy(v) for k, v in trained.items()})
    videos, labels = squares(40, "test")
    right = [float((model.logits(codes(model, v)).argmax(1) == label).float().mean())
             for v, label in zip(videos, labels, strict=True)]
    assert np.mean(right) > 0.9, "one frame alone cannot say: most greys occur with both labels"


def test_features_lie_in_the_ball_and_the_codebook_among_them(trained):
    model = load_coder({k: torch.from_numpy(v) for k, v in trained.items()})
    found = codes(model, squares(1, "one")[0][0])
    assert found.shape == (16, DIM) and float(found.norm(dim=1).max()) < 1
    assert trained["codebook"].shape == (ENTRIES, DIM) and np.linalg.norm(trained["codebook"], axis=1).max() < 1


def test_the_same_seed_gives_the_same_bytes_and_another_one_others():
    use_threads()
    videos, labels = squares(8, "train")
    one, same, other = (train_clip_coder("toy", videos, labels, None, 1, 4, seed, lambda text: None)
                        for seed in (1, 1, 2))
    assert all(one[k].tobytes() == same[k].tobytes() for k in one)
    assert one["project.weight"].tobytes() != other["project.weight"].tobytes()


def test_a_feature_depends_on_its_clip_not_on_the_order_of_it():
    torch.manual_seed(4)
    model = ClipCoder(6).eval()
    clip = squares(1, "order")[0][0]
    plain, order = codes(model, clip), np.random.default_rng(5).permutation(16)
    torch.testing.assert_close(codes(model, clip[order]), plain[torch.from_numpy(order)], rtol=1e-4, atol=1e-5)
    other = clip.copy()
    other[-1] = 255 - other[-1]
    assert not torch.allclose(codes(model, other)[0], plain[0], atol=1e-5), "frame 0 is the same, its clip is not"


def test_a_state_loads_as_the_coder_that_it_is_of():
    assert isinstance(load_coder(FrameCoder(6, 4).state_dict()), FrameCoder)
    assert isinstance(load_coder(ClipCoder(6, 4).state_dict()), ClipCoder)
    with pytest.raises(RuntimeError):
        load_coder({k: v for k, v in ClipCoder(6).state_dict().items() if not k.startswith("frame")})


def test_what_a_face_does_knows_no_place_size_tilt_or_person():
    rng = seeds.derive(8, "marks")
    faces = {p: rng.normal(size=(9, 2)) * [10, 12] for p in "ab"}
    moves = 0.8 * rng.normal(size=(2, 6, 9, 2))  # of two videos of 6 frames, the same whoever acts them

    def seen(person: str, k: int, size: float, tilt: float, place: tuple[float, float]) -> np.ndarray:
        turn = np.array([[np.cos(tilt), -np.sin(tilt)], [np.sin(tilt), np.cos(tilt)]])
        return (size * (faces[person] + moves[k]) @ turn.T + place).astype(np.float64)

    people = ["a", "a", "b", "b"]
    plain = expressions([seen(p, k % 2, 1, 0, (0, 0)) for k, p in enumerate(people)], people)
    other = expressions([seen(p, k % 2, 1 + k, 0.1 * k, (5 * k, 3)) for k, p in enumerate(people)], people)
    for one, same in zip(plain, other, strict=True):
        np.testing.assert_allclose(one, same, atol=1e-6)
    everything = np.concatenate(plain)
    assert np.sqrt(np.square(everything).mean()) == pytest.approx(1)
    assert np.abs(np.concatenate(plain[:2]).mean(0)).max() < 1e-9, "the person's own mean is taken away"
    still = expressions([seen(p, 0, 1, 0, (0, 0))[[0] * 6] for p in people] + [seen("a", 1, 1, 0, (0, 0))],
                        [*people, "a"])
    assert np.abs(np.diff(still[0], axis=0)).max() < 1e-9, "a face that does not move says so"
