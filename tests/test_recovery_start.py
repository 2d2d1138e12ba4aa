"""The start of a recovery network: general ways of making pictures worse, and what is learnt from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench import Context, Pair, Video, registry, seeds
from bench.asset_list import ASSETS
from bench.nets import recovery, recovery_start
from bench.nets.degrade import WAYS, degraded, moving_mosaic, noisy, still_mosaic
from bench.nets.recovery import RecoveryRecipe, train_recovery
from bench.nets.recovery_start import Spoiled, train_start
from bench.nets.rvrt import RVRT, SIZES

pytestmark = pytest.mark.usefixtures("one_thread")


def picture(frames: int = 4, side: int = 24) -> np.ndarray:
    still = seeds.derive(3, "picture").integers(0, 256, (1, side, side, 3)).astype(np.uint8)
    return np.repeat(still, frames, axis=0)


def rng(*names):
    return seeds.derive(7, *names)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_keeps_the_shape_loses_detail_and_repeats_under_its_seed(way):
    frames = picture()
    made = way(frames, rng("a"))
    assert made.shape == frames.shape and made.dtype == np.uint8
    assert np.abs(made.astype(int) - frames).mean() > 2
    assert np.array_equal(made, way(frames, rng("a")))
    assert any(not np.array_equal(made, way(frames, rng(str(other)))) for other in range(8))


@pytest.mark.parametrize("way", [way for way in WAYS if way is not noisy], ids=lambda way: way.__name__)
def test_a_flat_picture_has_nothing_to_lose(way):
    assert np.array_equal(way(np.full((3, 24, 24, 3), 90, np.uint8), rng("a")), np.full((3, 24, 24, 3), 90))


def test_only_the_moving_mosaic_samples_a_still_picture_anew():
    assert np.ptp(still_mosaic(picture(), rng("a")), axis=0).max() == 0
    assert np.ptp(moving_mosaic(picture(), rng("a")), axis=0).max() > 0


def test_noise_has_the_deviation_that_was_drawn():
    grey = np.full((8, 64, 64, 3), 128, np.uint8)
    drawn = rng("n").uniform(4.0, 60.0)
    deviation = (noisy(grey, rng("n")) - 128.0).std()
    assert deviation == pytest.approx(drawn, rel=0.03) or drawn > 45  # clipping at 0 and 255 takes some of large noise
    assert (noisy(grey, rng("n"), 0.2) - 128.0).std() == pytest.approx(0.2 * drawn, rel=0.03)


def test_each_epoch_spoils_anew_and_repeats():
    pair = Spoiled(Video(picture()), (), lambda epoch: rng("spoil", epoch))
    assert np.array_equal(pair.draw(1).frames, degraded(picture(), rng("spoil", 1)))
    assert not np.array_equal(pair.draw(1).frames, pair.draw(2).frames)


class Copy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.shift, self.given = torch.nn.Parameter(torch.zeros(())), []

    def forward(self, clips):
        self.given.append(clips.detach())
        return clips + self.shift


def test_squares_are_cut_from_pair_and_target_alike():
    video, net = Video(seeds.derive(1, "v").integers(0, 256, (6, 40, 40, 3)).astype(np.uint8)), Copy()
    losses = train_recovery(net, [Pair(video, (video,))], RecoveryRecipe(epochs=9, rate=0.0, side_px=16, eps=1e-12), 5)
    assert max(losses) < 1e-5 and {g.shape for g in net.given} == {(1, 6, 3, 16, 16)}
    assert len({g[0, 0, :, 0, 0].tolist().__str__() for g in net.given}) > 1  # at other places


def test_training_the_start_is_seeded_and_reads_whole_clips_only():
    videos, said = [Video(picture(40, 32)), Video(picture(20, 32))], []
    made = [train_start(videos, 1, lambda *n: seeds.derive_torch(4, *n), rng, said.append).state_dict()
            for _ in range(2)]
    assert all(torch.equal(made[0][name], made[1][name]) for name in made[0])
    fresh = RVRT(SIZES["tiny"]).state_dict()
    assert made[0].keys() == fresh.keys() and made[0]["finish.2.weight"].abs().max() > 0  # it starts at zero
    assert len(said) == 2 and "epoch 1/1" in said[0]


def test_the_attacker_starts_from_the_evaluation_asset(monkeypatch):
    torch.manual_seed(0)
    asset = {k: tensor.half().numpy() + np.float16(0.01) for k, tensor in RVRT(SIZES["tiny"]).state_dict().items()}
    monkeypatch.setattr(recovery, "train_recovery", lambda *a, **k: [])
    attack = registry.get("attacks", "recover_rvrt")()
    assert attack.assets == ("recovery_eval",) and ASSETS["recovery_eval"].architecture == "rvrt"
    attack.fit([Pair(Video(picture()), (Video(picture()),))], {"recovery_eval": asset},
               Context(rng=rng, torch_seed=lambda *n: 1, report=lambda text: None))
    assert all(np.array_equal(attack.state()[name], asset[name].astype(np.float32)) for name in asset)


def test_no_recovery_without_its_start():
    attack = registry.get("attacks", "recover_rvrt")()
    with pytest.raises(KeyError):
        attack.fit([Pair(Video(picture()), (Video(picture()),))], {},
                   Context(rng=rng, torch_seed=lambda *n: 1, report=lambda text: None))


def test_the_start_uses_pieces_that_fill_the_attention_window():
    frames, side, _ = SIZES["tiny"].window
    assert recovery_start.SIDE_PX == 4 * side and recovery_start.FRAMES % frames == 0
