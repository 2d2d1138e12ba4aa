"""Claims in TOML: every unit, every wrong key or number in one clear paragraph."""

import math
from fractions import Fraction as F

import pytest

from bench.errors import ConfigError, PluginError
from bench.privacy.accounting import claimed, price
from bench.privacy.claim_file import claim_from, load_claim, parse_claim
from bench.privacy.claims import FullClaim
from bench.privacy.contract import Branch

G03 = """
[claim]
unit = "clip"
frames = 16
clips = 1
delta = 1e-5
[[claim.branch]]
name = "id"
clip_norm = 1.0
noise_std = 40.0
[[claim.branch]]
name = "expr"
clip_norm = 1.0
noise_std = 20.0
"""
EVENT = """
[claim]
unit = "event"
window_chunks = 30
changed_chunks = 2
cap = 6
allocation = 0.25
spends = [0.4, 0.4, 0.4]
"""


def test_the_example_of_the_design(tmp_path):
    path = tmp_path / "claim.toml"
    path.write_text(G03)
    claim = load_claim(path)
    p = price(claim)
    assert (p.rho, p.epsilon_exact) == pytest.approx((0.1, 1.760057149513881), abs=1e-9)
    assert [b.noise for b in claim.branches] == ["gaussian", "gaussian"]
    short = claimed(claim, p)
    assert (short.unit, short.adjacency, short.horizon, short.delta) == ("clip", "replace", "1 clip of 16 frames", 1e-5)


def test_events_are_read_as_fractions():
    claim = parse_claim(EVENT)
    assert claim.event.spends == (F(2, 5),) * 3 and claim.event.allocation == (F(1, 4),)
    p = price(claim)
    assert (p.epsilon_sum, p.epsilon_max) == (1.2, 0.4)  # floats would say 1.2000000000000002
    assert any("2 s" in s for s in p.assumptions)
    overlapping = parse_claim(EVENT + 'cadence_chunks = 10\nadjacency = "per_window"\n')
    assert price(overlapping).epsilon == 1.2 and price(overlapping).epsilon_max == 1.2


def test_pixels_labels_and_pure_branches():
    pixels = parse_claim('[claim]\nunit = "pixels"\nm = 16\nb = 8\nepsilon = "1/6"\n')
    assert price(pixels).epsilon == 8.0
    label = parse_claim('[claim]\nunit = "label"\nclasses = 6\nepsilon = 8\n')
    assert price(label).epsilon_pure == 8.0
    avatar = parse_claim('[claim]\nunit = "clip"\n[[claim.branch]]\nname = "label"\nepsilon = 8\nclasses = 6\n')
    assert (avatar.branches[0].noise, price(avatar).epsilon_pure) == ("randomized_response", 8.0)
    frame = parse_claim('[claim]\nunit = "frame"\n[[claim.branch]]\nname = "id"\nclip_norm = 1\nnoise_std = 4\n')
    assert price(frame).mu == pytest.approx(0.5)  # one frame unless it says more


def test_a_branch_without_noise_is_in_clear():
    for line in ("", 'noise = "none"\n', 'noise = "clear"\n', 'noise = "gausian"\n'):
        assert price(parse_claim(G03 + '[[claim.branch]]\nname = "pose"\n' + line)).epsilon == math.inf


@pytest.mark.parametrize("old, new, words", [
    ("noise_std = 40.0", "noise_std = -1", ["branch 'id'", "noise_std", "negative"]),
    ("noise_std = 40.0", "noise_std = 0", ["branch 'id'", "noise_std"]),
    ("noise_std = 40.0", "noise_std = nan", ["branch 'id'", "noise_std", "finite"]),
    ("noise_std = 40.0", "noise_std = inf", ["branch 'id'", "noise_std", "finite"]),
    ("noise_std = 40.0", "noise_std = true", ["claim.branch[0].noise_std"]),
    ("noise_std = 40.0", 'noise_std = "40"', ["claim.branch[0].noise_std"]),
    ("noise_std = 40.0", "noise_sdt = 40.0", ["claim.branch[0].noise_sdt", "noise_std"]),
    ("noise_std = 40.0", 'noise = "gaussian"', ["branch 'id'", "noise_std is missing"]),
    ("noise_std = 40.0", 'noise_std = 40\nnorm = "l3"', ["branch 'id'", "norm", "l2"]),
    ("clip_norm = 1.0\nnoise_std = 40.0", "noise_std = 40.0", ["branch 'id'", "clip_norm is missing"]),
    ("frames = 16", "frames = 16.5", ["claim.frames"]),
    ("frames = 16", "frames = 0", ["frames"]),
    ("frames = 16", "frames = 10000000000", ["frames"]),
    ("clips = 1", "clips = -3", ["clips"]),
    ("delta = 1e-5", "delta = 0", ["delta"]),
    ("delta = 1e-5", "delta = 2", ["delta", "too large"]),
    ("delta = 1e-5", "delta = nan", ["delta"]),
    ('unit = "clip"', 'unit = "clips"', ["clips", "Did you mean clip"]),
    ('unit = "clip"', 'unit = "clip"\nadjacency = "add/remove"', ["adjacency", "public by definition"]),
    ('unit = "clip"', 'unit = "clip"\nspends = [0.4]', ["claim.spends", "event"]),
    ('unit = "clip"', 'unit = "event"', ["window_chunks"]),
    ('name = "expr"', 'name = "id"', ["same name"]),
    ('unit = "clip"', "", ["claim.unit", "required"]),
    ("[claim]", "[claims]", ["claim"]),
    ("frames = 16", "frames = ", ["not TOML"]),
])
def test_wrong_claims_name_what_is_wrong(old, new, words):
    assert old in G03
    with pytest.raises(ConfigError) as caught:
        parse_claim(G03.replace(old, new, 1))
    said = str(caught.value)
    assert all(w in said for w in words), said
    assert "\n" not in said and "pydantic" not in said


@pytest.mark.parametrize("old, new, word", [
    ("window_chunks = 30\n", "", "window_chunks"), ("cap = 6", "cap = -6", "cap"),
    ("spends = [0.4, 0.4, 0.4]", "spends = []", "spends"),
    ("0.4, 0.4, 0.4", "0.4, inf", r"spends\[1\]"), ("0.4, 0.4, 0.4", '"2/5", "x"', r"spends\[1\]"),
    ("allocation = 0.25", "allocation = [0.8, 0.8]", "allocation"), ("allocation = 0.25", "m = 3", "claim.m"),
    ("changed_chunks = 2", "changed_chunks = 0", "changed_chunks"),
    ("spends = [0.4, 0.4, 0.4]", 'spends = [0.4]\n[[claim.branch]]\nname = "x"\nclip_norm = 1\nnoise_std = 1', "'x'"),
])
def test_wrong_events_name_what_is_wrong(old, new, word):
    assert old in EVENT
    with pytest.raises(ConfigError, match=word):
        parse_claim(EVENT.replace(old, new, 1))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_claim(tmp_path / "missing.toml")
    path = tmp_path / "wrong.toml"
    path.write_text(G03.replace("40.0", "-40.0"))
    with pytest.raises(ConfigError, match=r"wrong\.toml.*noise_std"):
        load_claim(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_claim(path)
    with pytest.raises(ConfigError, match="claim"):
        claim_from({})


def test_a_mistyped_key_names_the_nearest_ones_of_its_table():
    text = '[claim]\nunit = "clip"\ndelat = 1e-5\n[[claim.branch]]\nname = "id"\nclip_nrm = 1.0\n'
    with pytest.raises(ConfigError) as error:
        parse_claim(text)
    assert "claim.branch[0].clip_nrm is not a key" in error.value.what and "claim.delat" in error.value.what
    assert "clip_norm" in error.value.remedy and "delta" in error.value.remedy


def test_a_delta_in_the_place_of_an_adjacency_is_refused_in_words():
    with pytest.raises(ConfigError, match="does not go with the unit 'clip'"):
        FullClaim("clip", 1e-5)


def test_a_gaussian_branch_needs_a_floor():
    with pytest.raises(PluginError, match="Gaussian noise needs a floor"):
        Branch("id", dim=4)
