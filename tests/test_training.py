"""The training loop: seeded to the bit, loud when it diverges, calm on pictures without content."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from bench.errors import Diverged
from bench.nets.image import as_input, frame_classifier, jitter
from bench.nets.training import Recipe, load_matching, predict, train_classifier
from bench.nets.video import SIZES, as_clip_input, jitter_clips, x3d
from bench.sampling import spread
from bench.seeds import derive

pytestmark = pytest.mark.usefixtures("one_thread")


def data(n=24, classes=2):
    """Dark and bright pictures, with noise."""
    rng = derive(1, "training")
    targets = np.arange(n) % classes
    frames = rng.integers(0, 100, (n, 8, 8, 3)) + 120 * targets[:, None, None, None]
    return torch.from_numpy(frames.astype(np.uint8)), torch.from_numpy(targets)


def plain(seed=0, width=192):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(width, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def trained(seed, *, weights=0, epochs=4, **more):
    model = plain(weights)
    recipe = Recipe(epochs=epochs, batch=8, prepare=as_input, augment=jitter, rate=1e-2, **more)
    progress = train_classifier(model, lambda epoch: data(), recipe, seed)
    return model, progress, recipe


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_the_same_seed_gives_the_same_weights_and_another_one_others():
    assert same(trained(7)[0], trained(7)[0])
    assert not same(trained(7)[0], trained(8)[0])


def test_the_global_generator_is_not_read():
    torch.manual_seed(1)
    first = trained(7)[0]
    torch.manual_seed(0)
    model = plain()
    torch.manual_seed(999)
    train_classifier(model, lambda epoch: data(), Recipe(epochs=4, batch=8, prepare=as_input, augment=jitter,
                                                         rate=1e-2), 7)
    assert same(first, model)


def test_it_learns_what_can_be_learnt():
    model, progress, recipe = trained(7, epochs=8)
    inputs, targets = data()
    log_p = predict(model, inputs, recipe)
    assert progress.last_loss < progress.first_loss and (log_p.argmax(1) == targets).float().mean() == 1
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(len(targets)))


def test_the_epoch_best_on_calibration_is_kept():
    seen = []

    def epoch_data(epoch):  # the last epoch teaches the opposite
        inputs, targets = data()
        return (inputs, targets) if epoch < 5 else (inputs, 1 - targets)

    model = plain()
    recipe = Recipe(epochs=8, batch=8, prepare=as_input, rate=3e-2)
    progress = train_classifier(model, epoch_data, recipe, 7, calibration=data(), report=seen.append)
    assert progress.calibration == 1 and progress.epoch < 6 and len(seen) == 8
    inputs, targets = data()
    assert (predict(model, inputs, recipe).argmax(1) == targets).all()


def test_a_loss_that_is_not_finite_is_divergence():
    recipe = Recipe(epochs=2, prepare=lambda b: as_input(b) * float("nan"))
    with pytest.raises(Diverged, match="loss became nan in epoch 1, step 1"):
        train_classifier(plain(), lambda epoch: data(), recipe, 7)
    with pytest.raises(Diverged, match="epoch 2"):
        train_classifier(plain(), lambda epoch: data(), Recipe(
            epochs=2, batch=24, prepare=iter_scale([1.0, float("inf")])), 7)


def iter_scale(scales):
    left = iter(scales)
    return lambda batch: as_input(batch) * next(left)


def test_a_single_left_over_sample_does_not_break_batch_norm():
    inputs, targets = data(17)
    train_classifier(plain(), lambda epoch: (inputs, targets), Recipe(epochs=1, batch=16, prepare=as_input), 7)


def test_weights_of_another_architecture_are_refused():
    small = frame_classifier("resnet10t", 3)
    with pytest.raises(ValueError, match="another architecture"):
        load_matching(small, x3d(3, SIZES["tiny"]).state_dict())
    with pytest.raises(ValueError, match="another architecture"):
        load_matching(small, {})


def test_a_head_of_another_size_is_left_out_and_the_rest_loaded():
    source, target = frame_classifier("resnet10t", 5), frame_classifier("resnet10t", 3)
    assert load_matching(target, source.state_dict()) == ["fc.bias", "fc.weight"]
    assert torch.equal(target.state_dict()["conv1.0.weight"], source.state_dict()["conv1.0.weight"])
    assert load_matching(frame_classifier("resnet10t", 5), source.state_dict()) == []


def test_blackout_does_not_diverge_and_stays_at_chance():
    torch.manual_seed(0)
    model = frame_classifier("resnet10t", 4)
    frames, targets = torch.full((16, 64, 64, 3), 128, dtype=torch.uint8), torch.arange(16) % 4
    recipe = Recipe(epochs=3, batch=8, prepare=as_input, augment=jitter)
    progress = train_classifier(model, lambda epoch: (frames, targets), recipe, 7)
    assert np.isfinite(progress.last_loss)
    log_p = predict(model, frames, recipe)
    assert torch.isfinite(log_p).all() and (log_p.argmax(1) == targets).float().mean() == 0.25


def test_blackout_clips_do_not_diverge():
    torch.manual_seed(0)
    size = SIZES["tiny"]
    model = x3d(2, size)
    clips, targets = torch.zeros(4, size.frames, 32, 32, 3, dtype=torch.uint8), torch.arange(4) % 2
    recipe = Recipe(epochs=2, batch=4, prepare=lambda c: as_clip_input(c, size.side_px), augment=jitter_clips)
    assert np.isfinite(train_classifier(model, lambda epoch: (clips, targets), recipe, 7).last_loss)
    assert torch.isfinite(predict(model, clips, recipe)).all()


def test_inputs_are_scaled_and_ordered():
    frames = torch.zeros(1, 4, 4, 3, dtype=torch.uint8)
    frames[0, 1, 2, 0] = 255
    batch = as_input(frames)
    assert batch.shape == (1, 3, 4, 4) and batch[0, 0, 1, 2] == 2 and batch[0, 1, 1, 2] == -2
    clip = as_clip_input(frames.repeat(2, 1, 1, 1)[None], 2)  # 4 px -> 2 px: a quarter of the white pixel
    deviation = (2 * 0.1875**2 + 6 * 0.0625**2) / 7  # of 1/4 in one of four pixels of two frames, mean 1/16
    assert clip.shape == (1, 3, 2, 2, 2) and clip[0, 2].abs().max() == 0  # a constant channel stays finite
    assert clip[0, 0, 0, 0, 1].item() == pytest.approx(0.1875 / (deviation**0.5 + 0.0125), rel=1e-5)


@pytest.mark.parametrize("unpadded, start, length, count, expected", [
    (32, 16, 16, 4, [18, 22, 26, 30]), (17, 16, 16, 8, [16] * 8), (16, 0, 16, 16, list(range(16))),
    (20, 0, 20, 2, [5, 15])])
def test_spread_never_reads_padding(unpadded, start, length, count, expected):
    assert spread(unpadded, start, length, count).tolist() == expected


def test_spread_outside_is_refused():
    with pytest.raises(ValueError, match="outside a video of 16 frames"):
        spread(16, 16, 16, 8)
