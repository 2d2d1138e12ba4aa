"""Recovery attackers: alignment, recurrence, what a net can and cannot see, and training that is seeded and loud."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from bench import Context, Pair, Video, registry, seeds
from bench.errors import Diverged
from bench.nets.deform import GuidedDeformableAttention
from bench.nets.recovery import (
    NetworkRecover,
    RecoveryRecipe,
    always,
    charbonnier,
    copied,
    mean_face,
    train_recovery,
)
from bench.nets.rvrt import RVRT, SHARE, SIZES, RVRTSize, clip_flows, start_as_mean
from bench.nets.spynet import SpyNet, compose, warp
from bench.nets.unet import UNet
from bench.nets.windows import Backbone, WindowAttention, cut, join, relative_index, shift_mask

SMALL = RVRTSize(width=8, blocks=(1, 1, 1), depth=(2, 1, 2), heads=2, aligners=2, groups=1, reach=2.0, matching=4,
                 hidden=8, picture=4, flow_levels=2, flow_widths=(4, 4, 4, 4), direct=True)


pytestmark = pytest.mark.usefixtures("one_thread")


def context() -> Context:
    return Context(rng=lambda *more: seeds.derive(9, "recover", *more), report=lambda text: None,
                   torch_seed=lambda *more: seeds.derive_torch(9, "recover", *more))


def awake(model: nn.Module) -> nn.Module:
    """Layers that start at zero get weights: what the rest of the network does becomes visible."""
    torch.manual_seed(1)
    for parameter in model.parameters():
        if parameter.abs().max() == 0:
            nn.init.normal_(parameter, std=0.1)
    return model.eval()


def noise(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(3))


# ---- flow and alignment --------------------------------------------------------------------------------------------

def test_warping_by_a_known_shift_undoes_it():
    picture = noise(1, 3, 12, 14)
    moved = torch.roll(picture, (2, -3), (2, 3))  # what was at (y, x) is now at (y + 2, x - 3)
    flow = torch.tensor([-3.0, 2.0])[None, :, None, None].expand(1, 2, 12, 14)
    torch.testing.assert_close(warp(moved, flow)[:, :, :-2, 3:], picture[:, :, :-2, 3:])
    torch.testing.assert_close(warp(picture, torch.zeros(1, 2, 12, 14)), picture)


def test_half_a_pixel_is_the_mean_of_two_and_the_border_is_repeated():
    picture = noise(1, 1, 5, 6)
    flow = torch.zeros(1, 2, 5, 6)
    flow[:, 0] = 0.5
    made = warp(picture, flow)
    torch.testing.assert_close(made[..., :-1], (picture[..., :-1] + picture[..., 1:]) / 2)
    torch.testing.assert_close(made[..., -1], picture[..., -1])


def test_flows_compose_to_the_sum_when_they_are_constant_and_follow_the_first_when_not():
    first, second = torch.full((1, 2, 8, 8), 2.0), noise(1, 2, 8, 8)
    made = compose(first, second)
    torch.testing.assert_close(made[..., :6, :6], 2.0 + second[..., 2:, 2:])


@pytest.mark.parametrize("side", [(16, 16), (9, 14), (4, 4)])
def test_the_flow_network_starts_without_motion_and_takes_any_side(side):
    net = SpyNet(3, (4, 4, 4, 4))
    a, b = noise(2, 3, *side), noise(2, 3, *side).flip(0)
    assert net(a, b).shape == (2, 2, *side) and net(a, b).abs().max() == 0
    assert awake(net)(a, b).abs().max() > 0


def test_the_published_flow_network_has_its_published_size():
    assert sum(p.numel() for p in SpyNet().parameters()) == 1_440_300  # methods note of RVRT


def test_flows_between_clips_are_the_sums_of_the_steps_between_their_frames():
    steps = torch.arange(1.0, 8.0)  # constant flow t + 1 -> t of each step, T = 8
    flows = steps[None, :, None, None, None].expand(1, 7, 2, 6, 6)
    made = clip_flows(flows)
    assert made.shape == (1, 3, 2, 2, 2, 6, 6)
    for k in range(3):
        for q in range(2):
            for p in range(2):
                here, there = 2 * (k + 1) + q, 2 * k + p
                assert torch.all(made[0, k, q, p] == steps[there:here].sum())
    assert clip_flows(flows[:, :1]).shape == (1, 0, 2, 2, 2, 6, 6)


def plain_attention(window: int) -> GuidedDeformableAttention:
    torch.manual_seed(0)
    return GuidedDeformableAttention(8, 2, window=window, reach=3.0, hidden=8)


def moving_clips() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features that move 1 px right and 1 px up each frame, (1, 2, 8, 10, 12) twice, and the true flows."""
    picture = noise(1, 8, 10, 12)
    frames = [torch.roll(picture, (-t, t), (2, 3)) for t in range(4)]
    flows = torch.zeros(1, 2, 2, 2, 10, 12)
    for q in range(2):
        for p in range(2):
            flows[0, q, p] = (2 + q - p) * torch.tensor([-1.0, 1.0])[:, None, None]  # back to where it was
    return torch.stack(frames[:2], 1), torch.stack(frames[2:], 1), flows


def test_with_the_true_flow_and_no_offsets_the_alignment_is_a_plain_warp():
    before, here, flows = moving_clips()
    made = plain_attention(1)(here, before, before, flows)
    for q in range(2):
        warped = [warp(before[:, p], flows[:, q, p]) for p in range(2)]
        inner = (slice(None), slice(None), slice(0, 7), slice(3, None))  # what did not come over the border
        torch.testing.assert_close(made[:, q][inner], warped[1][inner])
        torch.testing.assert_close(made[:, q][inner], here[:, q][inner])
    still = plain_attention(1)(here, before, before, torch.zeros_like(flows))
    assert (still - here).abs().mean() > 0.1  # without the flow it is not aligned


def test_the_sampled_positions_are_the_neighbours_of_where_the_flow_points():
    before, here, flows = moving_clips()
    positions = plain_attention(3).positions(here, before, flows)[0]  # [k, head, q, p, y, x, xy]
    positions = positions.permute(2, 0, 1, 3, 6, 4, 5)  # [q, k, head, p, xy, y, x]
    wanted = {(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)}
    for q in range(2):
        for k in range(2):
            around = positions[q, k] - flows[0, q, k]
            assert {tuple(map(int, a)) for a in around[0, :, :, 4, 4]} == wanted
            assert torch.equal(around[0], around[1])  # the same for each head before anything is learnt


def test_gradients_reach_offsets_flow_keys_and_values():
    torch.manual_seed(0)
    align = awake(GuidedDeformableAttention(8, 2, reach=3.0, hidden=8))
    before, here, flows = moving_clips()
    flows = (flows + 0.3).requires_grad_()
    align(here, before, before, flows).square().mean().backward()
    assert flows.grad.abs().max() > 0
    for name, parameter in align.named_parameters():
        if name != "key.bias":  # adds the same to every score: softmax does not see it
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name
    fresh = GuidedDeformableAttention(8, 2, reach=3.0, hidden=8)
    fresh(here, before, before, flows.detach()).square().mean().backward()
    assert fresh.offsets[-1].weight.grad.abs().max() > 0  # offsets leave zero


def test_what_is_the_same_everywhere_is_carried_unchanged_wherever_it_is_read():
    align = plain_attention(3)
    torch.manual_seed(2)
    for layer in (align.offsets[-1], align.query, align.key):
        nn.init.normal_(layer.weight, std=0.5)
    before, here, flows = moving_clips()
    grid, weights = align.match(here, before, flows)
    assert grid.std() > 0.1 and weights.std() > 0.01  # it looks to many places
    torch.testing.assert_close(weights.sum((1, 4)), torch.ones(1, 2, 2, 10, 12))
    even = torch.arange(8.0)[:, None, None].expand(1, 2, 8, 10, 12)
    torch.testing.assert_close(align.lay(even, grid, weights), even)


# ---- windows -------------------------------------------------------------------------------------------------------

def test_windows_are_cut_and_joined():
    x = noise(2, 4, 16, 24, 3)
    windows = cut(x, (2, 8, 8))
    assert windows.shape == (2 * 2 * 2 * 3, 128, 3)
    assert torch.equal(windows[0], x[0, :2, :8, :8].reshape(128, 3))
    assert torch.equal(windows[1], x[0, :2, :8, 8:16].reshape(128, 3))
    assert torch.equal(join(windows, (4, 16, 24), (2, 8, 8)), x)


def test_relative_positions_depend_on_the_difference_alone():
    index = relative_index((2, 3, 4))
    places = [(t, y, x) for t in range(2) for y in range(3) for x in range(4)]
    seen: dict[tuple[int, ...], int] = {}
    for i, a in enumerate(places):
        for j, b in enumerate(places):
            apart = tuple(m - n for m, n in zip(a, b))
            assert seen.setdefault(apart, int(index[i, j])) == index[i, j]
    assert len(set(seen.values())) == len(seen) == 3 * 5 * 7 and max(seen.values()) == 104


def test_the_shift_mask_keeps_apart_what_the_roll_brought_together():
    mask = shift_mask((2, 16, 16), (2, 8, 8), (0, 4, 4))
    assert mask.shape == (4, 128, 128) and mask[0].abs().max() == 0
    rows, columns = (torch.roll(torch.arange(16), -4) for _ in range(2))
    region = (rows < 4)[:, None] * 2 + (columns < 4)[None]  # came round from the top, from the left
    inside = cut(region[None, None, :, :, None].expand(1, 2, 16, 16, 1), (2, 8, 8))[..., 0]
    assert torch.equal(mask < 0, inside[:, :, None] != inside[:, None])


def test_attention_agrees_with_torch():
    torch.manual_seed(0)
    ours, peer = WindowAttention(8, 2, (2, 2, 2)), nn.MultiheadAttention(8, 2, batch_first=True)
    nn.init.zeros_(ours.bias)
    peer.in_proj_weight.data, peer.in_proj_bias.data = ours.queries_keys_values.weight.data, \
        ours.queries_keys_values.bias.data
    peer.out_proj.load_state_dict(ours.project.state_dict())
    x = noise(3, 8, 8)
    torch.testing.assert_close(ours(x, None), peer(x, x, x)[0])


@pytest.mark.parametrize("groups", [1, 2])
def test_channels_read_in_two_parts_are_the_channels_read_at_once(groups):
    torch.manual_seed(0)
    backbone = Backbone(12, 4, blocks=1, depth=1, heads=2, window=(2, 4, 4), groups=groups)
    clips = noise(1, 2, 12, 4, 8)
    made = backbone.read(clips[:, :, :8]) + backbone.read(clips[:, :, 8:], first=8)
    torch.testing.assert_close(made, backbone.read(clips))


def test_a_direct_backbone_keeps_how_strong_its_input_is():
    torch.manual_seed(0)
    for direct in (False, True):
        backbone = Backbone(4, 4, blocks=1, depth=2, heads=2, window=(2, 4, 4), direct=direct)
        nn.init.zeros_(backbone.inside.bias)
        clips = noise(1, 2, 4, 8, 8)
        ratio = backbone(100 * clips).norm() / backbone(10 * clips).norm()
        assert (8 < ratio < 10) == direct and ratio < 10  # the norms alone forget it


# ---- whole networks ------------------------------------------------------------------------------------------------

NETS = {"unet": lambda: UNet(4), "rvrt": lambda: RVRT(SMALL)}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("shape", [(1, 16, 3, 32, 32), (2, 5, 3, 32, 32), (1, 1, 3, 40, 32)])
def test_a_fresh_network_copies_its_input_of_any_length(name, shape):
    torch.manual_seed(0)
    clips = noise(*shape)
    net = NETS[name]().eval()
    assert torch.equal(net(clips), clips)
    made = awake(net)(clips)
    assert made.shape == clips.shape and torch.isfinite(made).all() and not torch.equal(made, clips)


@pytest.mark.parametrize("changed, seen", [(0, 15), (15, 0), (7, 2)])
def test_rvrt_carries_information_between_far_clips(changed, seen):
    torch.manual_seed(0)
    net, clips = awake(RVRT(SMALL)), noise(1, 16, 3, 32, 32)
    other = clips.clone()
    other[:, changed] = 1 - other[:, changed]
    with torch.no_grad():
        difference = (net(clips) - net(other))[0, seen]
    assert difference.abs().max() > 1e-6


def test_one_pass_carries_forward_only():
    torch.manual_seed(0)
    net, features = awake(RVRT(SMALL)), noise(1, 16, 8, 8, 8)
    other = features.clone()
    other[:, 8] += 1
    with torch.no_grad():
        flows = torch.zeros(1, 15, 2, 8, 8)
        difference = net.propagate("backward_1", features, flows) - net.propagate("backward_1", other, flows)
    touched = difference[0].abs().amax((1, 2, 3)) > 0
    assert touched.tolist() == [False] * 8 + [True] * 8  # in the order given; the net turns time round for a way back


def test_a_pass_starts_as_a_running_mean():
    torch.manual_seed(0)
    net, levels = RVRT(SMALL).eval(), [3.0, -1.0, 2.0, 5.0]
    step = net.step["forward_1"]
    nn.init.zeros_(step.inside.weight)
    nn.init.zeros_(step.end.weight)
    start_as_mean(step.inside, 8)
    features = torch.tensor(levels).repeat_interleave(2)[None, :, None, None, None].repeat(1, 1, 16, 8, 8)
    features[:, :, :8] = 9.0  # older features are not the ones that are averaged
    with torch.no_grad():
        made = net.propagate("forward_1", features, torch.zeros(1, 7, 2, 8, 8))
    wanted = levels[0]
    for k, level in enumerate(levels):
        wanted += SHARE * (level - wanted)
        inner = made[0, 2 * k:2 * k + 2]
        torch.testing.assert_close(inner, torch.full_like(inner, wanted))


def test_the_unet_sees_only_its_own_frame():
    torch.manual_seed(0)
    net, clips = awake(UNet(4)), noise(1, 4, 3, 32, 32)
    other = clips.clone()
    other[:, 1] = 1 - other[:, 1]
    with torch.no_grad():
        difference = (net(clips) - net(other))[0].abs().amax((1, 2, 3))
    assert (difference > 0).tolist() == [False, True, False, False]


def test_the_full_sizes_are_those_of_the_paper():
    with torch.device("meta"):
        full = RVRT(SIZES["paper"])
    parameters = sum(p.numel() for p in full.parameters())
    assert abs(parameters / 13_573_159 - 1) < 0.25  # the published network for deblurring; its exact layers differ
    assert SIZES["paper"].window == SIZES["tiny"].window == (2, 8, 8) and SIZES["paper"].aligners == 12
    assert list(full.step) == list(full.align) == ["backward_1", "forward_1", "backward_2", "forward_2"]


# ---- training ------------------------------------------------------------------------------------------------------

def pairs(count: int = 4, frames: int = 4, side: int = 32) -> list[Pair]:
    """Darkened squares beside the bright ones; two draws with other noise."""
    rng = seeds.derive(1, "pairs")
    made = []
    for i in range(count):
        original = np.full((frames + i % 2, side, side, 3), 60, np.uint8)
        for t in range(len(original)):
            original[t, 8:20, 4 + 2 * t:16 + 2 * t] = (200, 150, 100 + 10 * i)
        draws = [(original // 2 + rng.integers(0, 4, original.shape)).astype(np.uint8) for _ in range(2)]
        made.append(Pair(Video(original), tuple(Video(d) for d in draws)))
    return made


class Affine(nn.Module):
    """gain x + shift: the smallest thing that learns; remembers what it was given."""

    def __init__(self):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(()))
        self.given: list[torch.Tensor] = []

    def forward(self, clips):
        self.given.append(clips.detach())
        return self.gain * clips + self.shift


def test_the_loss_is_charbonnier():
    a, b = torch.tensor([0.0, 0.3]), torch.tensor([0.4, 0.3])
    assert charbonnier(a, b, 0.09).item() == pytest.approx((0.5 + 0.3) / 2)


def test_each_epoch_reads_its_own_draw_and_mirrors_both_alike():
    made = pairs(1)
    net = Affine()
    train_recovery(net, made, RecoveryRecipe(epochs=12, rate=0.0), 5)
    frames = [torch.from_numpy(v.frames).permute(0, 3, 1, 2).float().div(255)[None] for v in made[0].released]
    seen = [(torch.equal(g, frames[e % 2]), torch.equal(g, frames[e % 2].flip(4))) for e, g in enumerate(net.given)]
    assert all(a or b for a, b in seen) and 0 < sum(b for _, b in seen) < 12
    symmetric = Pair(made[0].original, (made[0].original,))  # a flip of one alone would cost
    losses = train_recovery(Affine(), [symmetric], RecoveryRecipe(epochs=8, rate=0.0, eps=1e-12), 5)
    assert max(losses) < 1e-5


def test_it_learns_and_clips_of_other_lengths_are_not_padded():
    net = Affine()
    losses = train_recovery(net, pairs(), RecoveryRecipe(epochs=150, rate=0.05), 5)
    assert losses[-1] < 0.02 < losses[0] and net.gain.item() == pytest.approx(2, abs=0.1)
    assert {g.shape[1] for g in net.given} == {4, 5} and {len(g) for g in net.given} == {2}


def test_pieces_are_cut_from_pair_and_target_alike():
    net = Affine()
    train_recovery(net, [Pair(p.original, (p.original,)) for p in pairs()],
                   RecoveryRecipe(epochs=3, rate=0.0, frames=2), 5)
    assert {g.shape[1] for g in net.given} == {2}


def test_the_flow_rests_first_and_then_learns():
    net, seen = nn.ModuleDict({"flow": Affine(), "rest": Affine()}), []
    net.forward = lambda clips: net["rest"](net["flow"](clips))
    before = net["flow"].gain.item()

    def note(text):
        seen.append((net["flow"].gain.item() == before, net["rest"].gain.item() == before))

    train_recovery(net, pairs(), RecoveryRecipe(epochs=10, slow="flow.", rest=0.5), 5, report=note)
    assert [a for a, _ in seen] == [True] * 5 + [False] * 5 and not any(b for _, b in seen)


@pytest.mark.parametrize("name, weight, says", [
    ("unet", "last.bias", "epoch 1, step 1"), ("rvrt", "finish.2.bias", "epoch 1, step 1"),
    ("rvrt", "align.forward_1.offsets.6.bias", "looks up"), ("rvrt", "flow.levels.0.0.weight", "looks up")])
def test_what_is_not_finite_is_divergence(name, weight, says):
    net = awake(NETS[name]())
    dict(net.named_parameters())[weight].data.fill_(float("nan"))
    with pytest.raises(Diverged, match=says):
        train_recovery(net, pairs(), RecoveryRecipe(epochs=1), 5)


def test_a_gradient_that_is_not_finite_is_divergence():
    class Steep(Affine):
        def forward(self, clips):
            return clips + (self.shift * 0.0).sqrt()  # 0, with an infinite slope

    with pytest.raises(Diverged, match="gradient became nan in epoch 1, step 1"):
        train_recovery(Steep(), pairs(), RecoveryRecipe(epochs=1), 5)


# ---- the attacks ---------------------------------------------------------------------------------------------------

ATTACKS = ("recover_unet", "recover_rvrt")


def small(name: str) -> NetworkRecover:
    attack = registry.get("attacks", name)(epochs=2, clips=3)
    attack.network = lambda profile: NETS[name.removeprefix("recover_")]()
    return attack


@pytest.mark.parametrize("name", ATTACKS)
def test_state_goes_to_another_process_and_the_seed_fixes_every_byte(name):
    made, given = [], pairs(frames=2)
    for _ in range(2):
        attack = small(name)
        attack.fit(given, {}, context())
        made.append(attack.recover(given[1].released[0]))
    again = small(name)
    again.load({k: np.array(v) for k, v in attack.state().items()}, context())
    made.append(again.recover(given[1].released[0]))
    assert made[0].frames.tobytes() == made[1].frames.tobytes() == made[2].frames.tobytes()
    assert made[0].frames.shape == (3, 32, 32, 3) and made[0].frames.dtype == np.uint8
    assert not np.array_equal(made[0].frames, given[1].released[0].frames)


@pytest.mark.parametrize("name", ATTACKS)
def test_no_more_pairs_are_read_than_allowed(name):
    read = set()

    class Counted(Pair):
        def draw(self, epoch):
            read.add(id(self))
            return super().draw(epoch)

    attack = small(name)
    attack.fit([Counted(p.original, p.released) for p in pairs(6, frames=2)], {}, context())
    assert len(read) == 3


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_says_what_it_knows_and_publishes_through_its_derived_release(name):
    attack = registry.get("attacks", name)
    assert attack.columns == () and attack.assets == ()
    assert (attack.threat.reads, attack.threat.trained_on, attack.threat.decoding) == ("clip", "development pairs",
                                                                                       "isolated")


def test_a_network_of_an_attack_starts_as_a_copy_in_the_tiny_profile():
    given = pairs(1, frames=3, side=64)[0].released[0]
    for name in ATTACKS:
        attack = registry.get("attacks", name)()
        attack.model = attack.network("tiny")
        made = attack.recover(Video(given.frames, 12.5))
        assert made.fps == 12.5 and np.array_equal(made.frames, given.frames)


def test_the_floors():
    made = pairs(2)
    face = mean_face(p.original for p in made)
    wanted = np.rint(sum(p.original.frames.mean(0) for p in made) / 2)
    np.testing.assert_array_equal(face, wanted.astype(np.uint8))
    guess = always(face, made[1].released[0])
    assert guess.frames.shape == (5, 32, 32, 3) and (guess.frames == face).all()
    np.testing.assert_array_equal(copied(made[0].released[0]).frames, made[0].released[0].frames)
