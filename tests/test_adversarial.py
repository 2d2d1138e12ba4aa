"""What makes the adversarial methods those methods: who learns what from what, who rests, where batches come from."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import methods.ted_spad as ted
from bench import Context, DataError, Diverged, PluginError, UserError, Video, registry, seeds
from bench.errors import WeightsMissing
from bench.nets import adversarial
from bench.nets.adversarial import SIZES, AdversarialAnonymizer, Development, draw_faces
from bench.nets.architectures import architecture
from bench.nets.clip_readers import ClipReader
from bench.nets.contrastive import FaceNet, nt_xent, seen, two_views
from bench.nets.minimax import Acts, Faces, Game, Sizes
from bench.nets.nested_unet import KEY, NestedUNet
from bench.nets.sigmoid_unet import SigmoidUNet
from bench.nets.training import use_threads
from bench.nets.video import as_clip_input
from bench.run.views import DevelopmentVideo

NAMES = ("spact", "ted_spad", "adversarial_supervised")
SMALL = Sizes(frames=4, side_px=32, clips=2, views=3, view_px=16, reconstruct=2, introduce=1, rounds=1,
              reconstruct_rate=1e-3, anonymizer_rate=1e-3, privacy_rate=1e-3, reader_rate=1e-3)
LABELS = {"expression": (0, 1, 2, 0, 1, 2), "identity": (0, 0, 1, 1, 2, 2)}


@pytest.fixture(autouse=True)
def one_thread():
    use_threads()


def stream(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seeds.derive_torch(seed, "adversarial"))


def context() -> Context:
    return Context(rng=lambda *names: seeds.derive(3, *names), report=lambda text: None,
                   torch_seed=lambda *names: seeds.derive_torch(3, *names))


def videos(count: int = 6, frames: int = 18, side: int = 32) -> list[np.ndarray]:
    coarse = seeds.derive(2, "videos").integers(0, 256, (count, frames, 8, 8, 3), dtype=np.uint8)
    return [np.kron(v, np.ones((1, side // 8, side // 8, 1), np.uint8)) for v in coarse]


class Labelled:
    """A development video that refuses every label that was not granted, as the harness does."""

    def __init__(self, frames: np.ndarray, **labels: int):
        self.video, self.labels = Video(frames), labels

    def __getattr__(self, name: str):
        if name not in self.labels:
            raise PluginError(f"fit reads the label {name!r}", "", "")
        return self.labels[name]


def data(needs, labels=None, every=None) -> SimpleNamespace:
    labels, every = labels or LABELS, every or videos()
    return SimpleNamespace(train=[Labelled(v, **{n: labels[n][i] for n in needs}) for i, v in enumerate(every)])


@pytest.fixture(scope="module")
def assets():
    torch.manual_seed(seeds.derive_torch(1, "asset"))
    return {"expression_method": {k: v.numpy() for k, v in architecture("x3d", 6).state_dict().items()}}


@pytest.fixture
def unjudged(monkeypatch):
    """Random frames hold no expression: these games are not judged by their reader."""
    monkeypatch.setattr(AdversarialAnonymizer, "_check_reader", lambda self, classes: None)


def fitted(spec: str, assets, sizes: Sizes = SMALL, given=None, **settings) -> AdversarialAnonymizer:
    method = registry.build("methods", spec)
    method.sizes = {"tiny": sizes}
    for name, value in settings.items():
        setattr(method, name, value)
    method.fit(given or data(method.needs), assets, context())
    return method


def bytes_of(module: nn.Module) -> str:
    return hashlib.sha256(b"".join(v.numpy().tobytes() for v in module.state_dict().values())).hexdigest()


# ---- networks ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("build, count", [
    (lambda: SigmoidUNet(64), 17_267_523),  # stated for the official code
    (NestedUNet, 13_898_787),  # segmentation_models_pytorch 0.5.0: UnetPlusPlus("resnet18", encoder_depth=4, ...)
    (lambda: ClipReader("i3d", 400), 28_043_472),  # pytorchvideo's model zoo: 28.04 M
    (lambda: ClipReader("r3d", 400), 33_371_472),  # torchvision's r3d_18
    (lambda: FaceNet("paper"), 23_508_032 + (2048 + 1) * 2048 + (2048 + 1) * 128)])  # torchvision's ResNet-50, MLP
def test_paper_networks_have_the_published_size(build, count):
    with torch.device("meta"):
        assert sum(p.numel() for p in build().parameters()) == count


def test_the_paper_profile_builds_the_networks_of_the_paper():
    with torch.device("meta"):
        for name in NAMES:
            method = registry.build("methods", name)
            anonymizer = method.new_anonymizer("paper")
            assert isinstance(anonymizer, NestedUNet if name == "ted_spad" else SigmoidUNet)
            reader, size = method.reader(7, "paper", {}).eval(), method.sizes["paper"]
            logits, feature = reader(torch.empty(1, size.frames, 3, size.side_px, size.side_px))
            assert reader.word == ("i3d" if name == "ted_spad" else "r3d") and logits.shape == (1, 7)
            assert feature.shape == (1, 128 if name == "ted_spad" else 512)
            assert anonymizer.eval()(torch.empty(1, 3, 112, 112)).shape == (1, 3, 112, 112)
    assert (SIZES["paper"].frames, SIZES["paper"].clips, SIZES["paper"].views) == (16, 24, 64)
    for size in ted.TedSpad.sizes.values():
        assert size.anonymizer_rate == pytest.approx(0.4 * size.privacy_rate)


@pytest.mark.parametrize("side", [(16, 16), (33, 17)])
def test_the_unet_stays_in_range_and_reads_each_frame_for_itself(side):
    torch.manual_seed(seeds.derive_torch(1, "unet"))
    model, frames = SigmoidUNet(4).eval(), torch.rand(4, 3, *side, generator=stream())
    with torch.no_grad():
        made, changed = model(frames), model(torch.cat([frames[:2], 1 - frames[2:]]))
    assert made.shape == frames.shape and 0 < made.min() and made.max() < 1
    torch.testing.assert_close(made[:2], changed[:2])
    assert (made[2:] - changed[2:]).abs().max() > 1e-4


def test_the_nested_unet_accepts_any_side():
    with torch.device("meta"):
        assert NestedUNet().eval()(torch.empty(2, 3, 50, 70)).shape == (2, 3, 50, 70)


def test_the_reader_reads_clips_as_the_shared_network_learned_it(assets):
    clips = torch.randint(0, 256, (2, 4, 32, 32, 3), generator=stream(), dtype=torch.uint8)
    start = {k: torch.from_numpy(v) for k, v in assets["expression_method"].items()}
    reader = ClipReader("x3d", 3, start=start).eval()
    given = clips.permute(0, 1, 4, 2, 3).float() / 255
    torch.testing.assert_close(reader.prepared(given), as_clip_input(clips, 64))
    whole = architecture("x3d", 3).eval()
    whole.load_state_dict({**whole.state_dict(), **{k: v for k, v in start.items() if ".proj." not in k}})
    whole.blocks[5].proj.load_state_dict(reader.head.proj.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(reader(given)[0], whole(as_clip_input(clips, 64)))


def test_weights_of_another_architecture_are_no_start():
    with pytest.raises(ValueError, match="another architecture"):
        ClipReader("x3d", 3, start={"fc.weight": torch.zeros(3, 3)})


# ---- learning without labels ---------------------------------------------------------------------------------------

def test_nt_xent_is_its_equation():
    n, tau = 4, 0.1
    z = F.normalize(torch.randn(2 * n, 8, generator=stream()), dim=1)
    terms = []
    for i in range(2 * n):
        partner = (i + n) % (2 * n)
        scores = {k: math.exp(float(z[i] @ z[k]) / tau) for k in range(2 * n) if k != i}
        terms.append(-math.log(scores[partner] / sum(scores.values())))
    assert nt_xent(z[:n], z[n:], tau).item() == pytest.approx(np.mean(terms), rel=1e-4)


def test_nt_xent_knows_its_limits():
    same, apart = torch.ones(5, 1), torch.eye(5)
    assert nt_xent(same, same, 0.1).item() == pytest.approx(math.log(9), rel=1e-5)  # 1 positive, 8 negatives
    assert nt_xent(apart, apart, 0.1).item() == pytest.approx(math.log(1 + 8 * math.exp(-10)), rel=1e-3)
    assert nt_xent(apart, apart.roll(1, 0), 0.1) > nt_xent(same, same, 0.1)


def test_both_views_are_of_one_frame():
    shades = torch.tensor([0.15, 0.45, 0.75])
    first, second = two_views(shades[:, None, None, None].expand(3, 3, 24, 24), stream(), 16)
    assert first.shape == second.shape == (3, 3, 16, 16)
    for view in (first, second):  # light by 10 % at most; an erased patch cannot move the median
        assert torch.allclose(view.flatten(1).median(1).values, shades, rtol=0.11)
    texture = torch.rand(3, 3, 24, 24, generator=stream(2))
    first, second = two_views(texture, stream(), 16)
    assert ((first - second).flatten(1).abs().mean(1) > 0.02).all(), "the two views are drawn apart"


def test_the_frames_of_a_clip_are_seen_alike():
    still = torch.rand(2, 1, 3, 20, 20, generator=stream()).expand(2, 5, 3, 20, 20)
    made = seen(still, stream(), 16)
    torch.testing.assert_close(made, made[:, :1].expand_as(made))
    assert (made[0] - made[1]).abs().mean() > 0.05


@pytest.mark.parametrize("name", ["spact", "ted_spad"])
def test_the_privacy_network_sees_two_anonymized_views_and_nothing_else(name):
    method, calls = registry.build("methods", name), {"anonymizer": [], "privacy": []}

    def player(word, answer):
        def call(*given, **more):
            assert len(given) == 1 and not more
            calls[word].append(given[0])
            return answer(given[0])
        return call

    method.anonymizer = player("anonymizer", lambda x: 0.5 * x)
    method.game = SimpleNamespace(sizes=SMALL, privacy=player("privacy", lambda x: F.normalize(x.flatten(1), dim=1)))
    frames = torch.rand(3, 3, 32, 32, generator=stream())
    loss = method.privacy_loss(Faces(frames), stream())
    wanted = two_views(frames, stream(), SMALL.view_px)
    for given, anonymized, view in zip(calls["anonymizer"], calls["privacy"], wanted, strict=True):
        torch.testing.assert_close(given, view)
        torch.testing.assert_close(anonymized, 0.5 * view)
    torch.testing.assert_close(loss, nt_xent(*(F.normalize(v.flatten(1), dim=1) for v in wanted), 0.1))


def test_spact_gives_its_privacy_network_no_label(assets, unjudged):
    """The privacy network learns to the bit the same under other labels; the reader does not."""
    sizes, seen_labels = replace(SMALL, introduce=2, rounds=0), []
    for labels in (LABELS, {"expression": (2, 2, 1, 1, 0, 0)}):
        method = fitted("spact", assets, sizes, data({"expression"}, labels))
        seen_labels.append((bytes_of(method.game.privacy), bytes_of(method.game.reader)))
    assert seen_labels[0][0] == seen_labels[1][0] and seen_labels[0][1] != seen_labels[1][1]


@pytest.mark.parametrize("name, needs", [("spact", {"expression"}), ("ted_spad", {"expression"}),
                                         ("adversarial_supervised", {"expression", "identity"})])
def test_faces_carry_a_person_only_where_it_is_declared(name, needs):
    cls = registry.get("methods", name)
    assert cls.needs == needs and cls.lane == "none" and cls.claim.epsilon == math.inf
    faces = draw_faces(Development(data(needs).train, cls.needs, 32), seeds.derive(1), 6)
    assert faces.frames.shape == (6, 3, 32, 32) and 0 <= faces.frames.min() and faces.frames.max() <= 1
    assert (faces.people is None) == ("identity" not in needs)
    if faces.people is not None:  # all six videos, each once: its own person
        by_frame = {v.tobytes(): p for video, p in zip(videos(), LABELS["identity"]) for v in video}
        for frame, person in zip((faces.frames * 255).round().byte().permute(0, 2, 3, 1).numpy(), faces.people):
            assert by_frame[np.ascontiguousarray(frame).tobytes()] == person


def test_the_supervised_opponent_is_a_classifier_of_people(assets):
    method = registry.build("methods", "adversarial_supervised")
    method.anonymizer = lambda x: x
    network = method.privacy_network(Development(data(method.needs).train, method.needs, 32), "tiny")
    logits = torch.tensor([[2.0, 0, 0], [0, 1, 0], [0, 0, 3]])
    assert network(torch.rand(2, 3, 16, 16, generator=stream())).shape == (2, 3)
    method.game = SimpleNamespace(sizes=SMALL, privacy=lambda x: logits)
    faces = Faces(torch.rand(3, 3, 32, 32, generator=stream()), torch.tensor([0, 2, 2]))
    torch.testing.assert_close(method.privacy_loss(faces, stream()), F.cross_entropy(logits, faces.people))


# ---- the game ------------------------------------------------------------------------------------------------------

def small_game(**more) -> Game:
    """Three small networks with batch norm, and losses that go through the anonymizer."""
    torch.manual_seed(seeds.derive_torch(1, "game"))
    parts = [nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)) for _ in range(3)]
    batch = torch.rand(4, 3, 8, 8, generator=stream())
    game = Game(*parts, privacy_loss=lambda faces: game.privacy(game.anonymizer(faces.frames)).square().mean(),
                reader_loss=lambda acts: (game.reader(game.anonymizer(acts.clips.flatten(0, 1))) - 1).square().mean(),
                faces=lambda: Faces(batch), acts=lambda: Acts(batch[:, None], torch.zeros(4)),
                sizes=replace(SMALL, rounds=3), report=lambda text: None, **more)
    return game


def test_one_side_moves_at_a_time_and_the_other_is_frozen():
    game, moves = small_game(), []
    players = {"anonymizer": game.anonymizer, "privacy": game.privacy, "reader": game.reader}
    step = game._step

    def watched(name, optimizer, player, loss):
        before = {n: bytes_of(p) for n, p in players.items()}
        wants = {n: all(p.requires_grad for p in m.parameters()) for n, m in players.items()}
        modes = {n: m.training for n, m in players.items()}
        step(name, optimizer, player, loss)
        moves.append((name, modes, wants, {n for n, p in players.items() if bytes_of(p) != before[n]}))

    game._step = watched
    game.play()
    played = [m for m in moves if m[0] != "reconstruction"]
    assert [m[0] for m in played] == ["reader", "privacy"] + ["anonymizer", "reader", "privacy"] * 3
    for name, modes, wants, moved in played:
        moving = {"anonymizer"} if name == "anonymizer" else {"reader", "privacy"}
        assert moved == {name}
        assert {n for n, training in modes.items() if training} == moving, "the others are in evaluation mode"
        assert {n for n, wanted in wants.items() if wanted} == moving, "no gradient reaches the others"
    assert all(p.requires_grad for m in players.values() for p in m.parameters())


def test_statistics_of_a_resting_player_stay():
    game = small_game()
    game.anonymizer.eval()
    before = bytes_of(game.anonymizer)
    game.move_opponents({n: game._optimizer(m, 1e-3) for n, m in (("reader", game.reader), ("privacy", game.privacy))})
    assert bytes_of(game.anonymizer) == before
    before = bytes_of(game.reader), bytes_of(game.privacy)
    game.move_anonymizer(game._optimizer(game.anonymizer, 1e-3))
    assert (bytes_of(game.reader), bytes_of(game.privacy)) == before


def test_the_anonymizer_descends_the_reader_and_climbs_the_opponent():
    game = small_game(privacy_weight=2.0, utility_weight=0.7)
    game.anonymizer.train(), game.reader.eval(), game.privacy.eval()
    privacy, reader = game.privacy_loss(game.faces()), game.reader_loss(game.acts())
    game.move_anonymizer(game._optimizer(game.anonymizer, 1e-3))
    assert game.losses["anonymizer"] == pytest.approx([(0.7 * reader - 2.0 * privacy).item()], rel=1e-5)
    for weights, better in (((1.0, 0.0), lambda a, b: b[0] > a[0]), ((0.0, 1.0), lambda a, b: b[1] < a[1])):
        game = small_game(privacy_weight=weights[0], utility_weight=weights[1])
        optimizer, seen_losses = game._optimizer(game.anonymizer, 1e-3), []
        for _ in range(6):
            game.move_anonymizer(optimizer)
            game.reader.eval(), game.privacy.eval()
            seen_losses.append((game.privacy_loss(game.faces()).item(), game.reader_loss(game.acts()).item()))
        assert better(seen_losses[0], seen_losses[-1])


def test_the_anonymizer_starts_from_a_copy():
    game = small_game()
    game.sizes = replace(game.sizes, reconstruct=40, introduce=0, rounds=0, reconstruct_rate=1e-2)
    game.play()
    losses = game.losses["reconstruction"]
    frames = game.acts().clips.flatten(0, 1)
    assert np.mean(losses[-5:]) < 0.5 * losses[0] and set(game.losses) == {"reconstruction"}
    assert losses[-1] == pytest.approx((game.anonymizer(frames) - frames).abs().mean().item(), rel=0.2)


def test_what_does_not_learn_says_so():
    game = small_game()
    game.sizes = replace(game.sizes, reconstruct=8, reconstruct_rate=0.0)
    with pytest.raises(Diverged, match="no progress in 8 steps of reconstruction"):
        game.play()
    game = small_game()
    game.reader_loss = lambda acts: game.reader(game.anonymizer(acts.clips.flatten(0, 1))).mean() * float("nan")
    with pytest.raises(Diverged, match="loss of the reader became nan in step 1"):
        game.play()
    game = small_game()
    game.privacy_loss = lambda faces: game.privacy(game.anonymizer(faces.frames)).mean().mul(0).sqrt()
    with pytest.raises(Diverged, match="gradient of the privacy became nan"):
        game.play()


def test_weights_that_are_not_finite_diverge(assets):
    broken = {k: v * np.float32("nan") if v.dtype.kind == "f" else v for k, v in assets["expression_method"].items()}
    with pytest.raises(Diverged, match="reader became nan"):
        fitted("spact", {"expression_method": broken})


def test_a_game_that_leaves_nothing_to_read_is_no_method():
    method = registry.build("methods", "spact")
    method.heard = [0.2] * 6 + [1.2, 1.2]
    with pytest.raises(Diverged, match=r"no better than a guess among 3 expressions \(1.099\)"):
        method._check_reader(3)
    method.heard = [2.0] * 6 + [0.9, 0.9]
    method._check_reader(3)


def test_without_the_privacy_term_there_is_no_opponent(assets, unjudged):
    method = fitted("spact@no_privacy", assets)
    assert method.game.privacy is None and set(method.game.losses) == {"reconstruction", "reader", "anonymizer"}
    assert type(method.anonymizer) is SigmoidUNet


# ---- the triplet ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("frames", [2, 5, 18, 32, 40])
def test_two_times_of_a_video_share_no_frame(frames):
    rng, order = seeds.derive(1, "times"), set()
    for _ in range(60):
        first, second, length = ted.two_times(frames, rng)
        assert length == min(16, frames // 2) and 0 <= min(first, second) and max(first, second) + length <= frames
        assert abs(first - second) >= length
        order.add(first < second)
    assert order == {True, False}


def test_positives_are_the_same_frames_and_negatives_another_time_of_the_same_video(monkeypatch):
    """Frames carry their video and their number; what is drawn is read before any view is made."""
    drawn = []
    monkeypatch.setattr(ted, "seen_clips", lambda clips, views: drawn.append(np.stack(clips)) or torch.zeros(1))
    every = [np.full((20 + 4 * i, 8, 8, 3), 0, np.uint8) for i in range(6)]
    for i, video in enumerate(every):
        video[..., 0], video[..., 1] = i, np.arange(len(video))[:, None, None]
    method = registry.build("methods", "ted_spad")
    development = Development(data({"expression"}, every=every).train, method.needs, 32)
    acts = method.draw_acts(development, seeds.derive(1), stream(), replace(SMALL, clips=12))
    anchor, positive, negative = (clips[:, :, 0, 0] for clips in drawn)  # (12, 4, 3): video, frame
    np.testing.assert_array_equal(anchor, positive)
    assert (anchor[:, :, 0] == negative[:, :, 0]).all() and len(set(anchor[:, 0, 0])) > 2
    for a, n in zip(anchor[:, :, 1], negative[:, :, 1]):
        assert (np.diff(a.astype(int)) > 0).all() and (a.max() < n.min() or n.max() < a.min())
    np.testing.assert_array_equal(acts.expressions, [LABELS["expression"][i] for i in anchor[:, 0, 0]])


def test_anchor_and_positive_are_seen_in_two_ways():
    method = registry.build("methods", "ted_spad")
    development = Development(data({"expression"}).train, method.needs, 32)
    acts = method.draw_acts(development, seeds.derive(1), stream(), SMALL)
    assert acts.clips.shape == acts.again.shape == acts.later.shape == (2, 4, 3, 32, 32)
    assert (acts.clips - acts.again).abs().mean() > 0.01


def test_the_readers_loss_is_cross_entropy_and_a_tenth_of_the_triplet():
    method = registry.build("methods", "ted_spad")
    parts = {0: (torch.tensor([[1.0, 0]]), torch.tensor([[1.0, 0]])), 1: (torch.zeros(1, 2), torch.tensor([[0.0, 1]])),
             2: (torch.zeros(1, 2), torch.tensor([[0.6, 0.8]]))}
    method.read = lambda clips: tuple(torch.cat([parts[int(c)][k] for c in clips.flatten()]) for k in (0, 1))
    acts = Acts(*(torch.tensor([[v]]) if v != "label" else torch.tensor([0]) for v in (0, "label", 1, 2)))
    apart = math.sqrt(2) - math.sqrt(0.4**2 + 0.8**2) + 1  # |a - p| - |a - n| + margin 1
    wanted = math.log(1 + math.exp(-1)) + 0.1 * apart
    assert method.reader_loss(acts).item() == pytest.approx(wanted, rel=1e-4)
    assert method.heard == pytest.approx([math.log(1 + math.exp(-1))], rel=1e-5), "judged by the expression alone"
    assert method.utility_weight == 0.7 and registry.build("methods", "spact").utility_weight == 1.0


# ---- fit, state, release -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", NAMES)
def test_fit_state_and_release(name, assets, unjudged):
    """The same seed gives the same bytes, a state is the method, a frame is released alone, the input stays."""
    first = fitted(name, assets)
    state = {k: np.array(v) for k, v in first.state().items()}
    if name == "ted_spad":
        feature = first.game.reader(torch.rand(2, 4, 3, 32, 32, generator=stream()))[1].detach()
        torch.testing.assert_close(feature.norm(dim=1), torch.ones(2))
    if name == "spact":
        again = fitted(name, assets).state()
        assert all(state[k].tobytes() == np.asarray(again[k]).tobytes() for k in state)
    other = registry.build("methods", name)
    other.load(state)
    frames = videos(1, 11)[0]
    frames.flags.writeable = False
    out = other.release(Video(frames, 29.97), seeds.derive(1))
    assert out.frames.dtype == np.uint8 and out.frames.shape == frames.shape and out.fps == 29.97
    np.testing.assert_array_equal(out.frames, first.release(Video(frames), seeds.derive(2)).frames)
    np.testing.assert_array_equal(out.frames[3:10], other.release(Video(frames[3:10]), seeds.derive(1)).frames)
    assert other.release(Video(videos(1, 2, 40)[0]), seeds.derive(1)).frames.shape == (2, 40, 40, 3)
    broken = {k: v[:1] if k.endswith("last.weight") else v for k, v in state.items()}
    with pytest.raises(DataError, match="another architecture"):
        other.load(broken)


def test_a_large_canvas_is_read_at_the_fitted_side(assets):
    method = registry.build("methods", "spact")
    method.side_px, method.anonymizer = 16, nn.Identity()
    blocks = np.kron(videos(1, 2, 8)[0], np.ones((1, 8, 8, 1), np.uint8))  # 64 px, blocks of 8 px
    shades = np.zeros_like(blocks) + blocks.mean((1, 2), keepdims=True).round().astype(np.uint8)
    np.testing.assert_array_equal(method.release(Video(shades), seeds.derive(1)).frames, shades)
    fine = (np.indices((1, 64, 64))[2] % 2 * 255).astype(np.uint8)[..., None].repeat(3, 3)
    assert method.release(Video(fine), seeds.derive(1)).frames.std() < 2, "detail finer than the side is gone"
    small = videos(1, 2, 8)[0]
    np.testing.assert_array_equal(method.release(Video(small), seeds.derive(1)).frames, small)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A checkpoint as the official code writes them, from several devices, and the tensors in it."""
    torch.manual_seed(seeds.derive_torch(5, "published"))
    state, path = NestedUNet().state_dict(), tmp_path_factory.mktemp("published") / "anonymizer.pth"
    torch.save({KEY: {f"module.{k}": v for k, v in state.items()}, "epoch": 3}, path)
    return path, state


def sha256(path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_published_anonymizer_is_used_as_it_is(published):
    path, state = published
    method = ted.TedSpad(weights=str(path), sha256=sha256(path))
    method.fit(None, {}, context())
    other = registry.build("methods", "ted_spad")
    other.load(method.state())
    found = other.anonymizer.state_dict()
    assert found.keys() == state.keys() and all(torch.equal(found[k], v) for k, v in state.items())
    frames = videos(1, 1)[0]
    assert other.release(Video(frames), seeds.derive(1)).frames.shape == frames.shape


def test_weights_that_are_not_the_published_ones_are_refused(published, tmp_path):
    whole, state = published
    cut, words = tmp_path / "cut.pth", tmp_path / "words.pth"
    torch.save({KEY: dict(list(state.items())[:3])}, cut)
    words.write_bytes(b"no weights")
    for path, digest, error, says in ((whole, "0" * 64, DataError, "have SHA-256"),
                                      (tmp_path / "nowhere.pth", "0" * 64, WeightsMissing, "There is no file"),
                                      (whole, "", WeightsMissing, "SHA-256"),
                                      (cut, sha256(cut), DataError, r"do not fit the U-Net\+\+"),
                                      (words, sha256(words), DataError, "cannot be read")):
        with pytest.raises(error, match=says) as caught:
            ted.TedSpad(weights=str(path), sha256=digest).fit(None, {}, context())
        assert isinstance(caught.value, UserError)


# ---- what a person can give wrong ----------------------------------------------------------------------------------

@pytest.mark.parametrize("name, missing", [("spact", "expression"), ("ted_spad", "expression"),
                                           ("adversarial_supervised", "identity")])
def test_a_split_without_the_labels_is_refused(tmp_path, name, missing):
    method = registry.build("methods", name)
    held = [DevelopmentVideo(tmp_path, {"file": "a.mkv", **{n: i for n in method.needs - {missing}}}, method.needs)
            for i in range(2)]
    with pytest.raises(DataError, match=f"no label '{missing}'"):
        method.fit(SimpleNamespace(train=held), {}, context())


@pytest.mark.parametrize("name, label", [("spact", "expression"), ("adversarial_supervised", "identity")])
def test_one_value_of_a_label_is_refused(name, label):
    method = registry.build("methods", name)
    with pytest.raises(DataError, match=f"All development videos have the label '{label}'"):
        method.fit(data(method.needs, {**LABELS, label: (4,) * 6}), {}, context())
    with pytest.raises(DataError, match="No development videos"):
        method.fit(SimpleNamespace(train=[]), {}, context())


def test_a_person_with_one_video_is_a_class_like_others():
    people = {**LABELS, "identity": (7, 7, 7, 7, 7, 9)}
    development = Development(data(LABELS, people).train, frozenset(LABELS), 32)
    assert development.count("identity") == 2 and development.labels["identity"].tolist() == [0] * 5 + [1]


def test_times_need_two_frames():
    method = registry.build("methods", "ted_spad")
    short = [v[:1] for v in videos()]
    with pytest.raises(DataError, match="No development video has two frames"):
        method.fit(data({"expression"}, every=short), {}, context())
    mixed = Development(data({"expression"}, every=[*short[:5], videos()[5]]).train, method.needs, 32)
    acts = method.draw_acts(mixed, seeds.derive(1), stream(), SMALL)
    assert acts.expressions.tolist() == [LABELS["expression"][5]] * 2, "a still has no other time"


def test_large_frames_are_shrunk_once():
    shrunk = adversarial.fitted(np.full((2, 40, 20, 3), 9, np.uint8), 20)
    assert shrunk.shape == (2, 20, 10, 3) and (shrunk == 9).all()
