"""`veilbench account`: golden prices and ceilings, closed forms, plain JSON, words a reader needs, wrong input."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from html.parser import HTMLParser
from statistics import NormalDist

import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.account import card, find, lines, report
from bench.account_words import percent
from bench.board import _environment
from bench.errors import ConfigError
from bench.privacy.claim_file import claim_from, parse_claim
from bench.privacy.claim_table import claim_to
from bench.privacy.claims import (
    ADJACENCIES,
    BranchClaim,
    EventClaim,
    FullClaim,
    LabelClaim,
    PixelsClaim,
)

GOLDEN = json.loads((ROOT / "tests" / "golden" / "golden_tadp.json").read_text())
CEILINGS = json.loads((ROOT / "tests" / "golden" / "golden_ceilings.json").read_text())
EXAMPLE = ROOT / "submissions" / "face" / "example_claim.toml"
EVENT = FullClaim("event", event=EventClaim(30, 2, (6,), (0.4,) * 10, (Fraction(1, 4),) * 4))
PIXELS = FullClaim("pixels", pixels=PixelsClaim(16, 8, epsilon="1/6"))
LABEL = FullClaim("label", label=LabelClaim(6, 8))
METRIC = FullClaim("image_metric", branches=(BranchClaim("z", "exponential", clip_norm=0.5, epsilon=1, rows=1),))
CLEAR = FullClaim("clip", branches=(BranchClaim("pose"),))
relaxed = settings(deadline=None, derandomize=True, max_examples=60)


def pure(epsilon, unit="clip", **more):
    branch = BranchClaim("label", "randomized_response", epsilon=epsilon, norm="label")
    return FullClaim(unit, branches=(branch,), **more)


def gaussian(mu, unit="clip", norm="l2", **more):
    """A claim whose one row has exactly this mu."""
    branch = BranchClaim("id", "gaussian", clip_norm=1.0, noise_std=2 / mu, norm=norm, rows=1)
    return FullClaim(unit, branches=(branch,), **more)


# ---- numbers -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("g", GOLDEN, ids=lambda g: g["name"])
def test_golden_prices_as_json(g, tmp_path, cli):
    path = tmp_path / "claim.toml"
    path.write_text(f'[claim]\nunit = "clip"\nframes = {g["T"]}\n' + "".join(
        f'[[claim.branch]]\nname = "{b}"\nclip_norm = {g[f"C_{b}"]}\nnoise_std = {g[f"s_{b}"]}\n'
        for b in ("id", "expr")))
    answer = cli("account", path, "--delta", g["delta"], "--clips", g["K"], "--format", "json")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    expected = {"rho": "rho", "mu": "mu", "epsilon_mironov": "eps_mironov", "epsilon_cks": "eps_cks",
                "epsilon_exact": "eps_exact", "epsilon": "eps_exact", "delta": "delta"}
    for ours, theirs in expected.items():
        assert found[ours] == pytest.approx(g[theirs], rel=1e-9, abs=1e-9), ours
    assert found["epsilon_pure"] is found["epsilon_sum"] is found["epsilon_max"] is None
    assert (found["unit"], found["adjacency"], found["clips"]) == ("clip", "replace", g["K"])


@pytest.mark.parametrize("epsilon", ["0.5", "1", "2", "4", "8"])
def test_golden_ceilings_of_pure_claims(epsilon):
    ceilings = report(pure(epsilon), "x")["ceilings"]
    e = float(epsilon)
    assert ceilings["auc"]["bound"] == pytest.approx(CEILINGS["auc_eps"][epsilon], rel=1e-12)
    assert ceilings["top1"]["2"]["bound"] == pytest.approx(CEILINGS["top1_eps"][f"2,{epsilon}"], rel=1e-12)
    for n in (9, 25):
        assert ceilings["top1"][str(n)]["bound"] == pytest.approx(math.exp(e) / (math.exp(e) + n - 1), rel=1e-12)
    assert ceilings["eer"]["bound"] == pytest.approx(1 / (1 + math.exp(e)), rel=1e-12)
    assert ceilings["eer"]["direction"] == "at least"
    assert ceilings["tar"]["bound"] == pytest.approx(min(0.01 * math.exp(e), 1 - 0.99 * math.exp(-e)), rel=1e-12)


@pytest.mark.parametrize("mu", ["0.5", "1", "2"])
def test_golden_ceilings_of_gaussian_claims(mu):
    ceilings = report(gaussian(float(mu)), "x")["ceilings"]
    assert ceilings["auc"]["bound"] == pytest.approx(CEILINGS["auc_gdp"][mu], rel=1e-9)
    assert ceilings["eer"]["bound"] == pytest.approx(CEILINGS["eer_gdp"][mu], rel=1e-9)
    assert ceilings["tar"]["bound"] == pytest.approx(CEILINGS["tpr_gdp_at"][f"0.01,{mu}"], rel=1e-9)
    assert ceilings["one_bit"]["bound"] == pytest.approx(1 - ceilings["eer"]["bound"], rel=1e-12)
    for n in (2, 9, 25):
        row, normal = ceilings["top1"][str(n)], NormalDist()  # rows in a ball: Phi(Phi^-1(1/n) + mu/2)
        assert row["bound"] == pytest.approx(normal.cdf(normal.inv_cdf(1 / n) + float(mu) / 2), rel=1e-9)
        assert row["chance"] == 1 / n and row["theorem"] and row["conditions"]


def test_a_box_earns_no_ball_theorem():
    box = FullClaim("clip", branches=(BranchClaim("id", "gaussian", 1.0, 2.0, norm="box", dim=4, rows=1),))
    assert all("Theorem 6" in c["theorem"] for c in report(box, "x")["ceilings"]["top1"].values())
    ball = report(gaussian(1.0), "x")["ceilings"]["top1"]["25"]
    assert "Theorem 8" in ball["theorem"] and ball["bound"] < report(box, "x")["ceilings"]["top1"]["25"]["bound"]


def test_events_pixels_and_labels():
    event = report(EVENT, "x")
    assert (event["epsilon"], event["epsilon_sum"], event["epsilon_max"], event["delta"]) == (0.4, 4.0, 0.4, 0.0)
    assert event["horizon_seconds"] == 600.0 and event["rho"] is event["mu"] is event["epsilon_exact"] is None
    assert event["ceilings"]["auc"]["bound"] == pytest.approx(CEILINGS["auc_eps"]["0.4"], rel=1e-12)
    pixels = report(PIXELS, "x")
    assert (pixels["epsilon"], pixels["epsilon_sum"], pixels["epsilon_max"]) == (8.0, 8.0, 0.5)
    assert report(LABEL, "x")["epsilon_pure"] == 8.0 and report(LABEL, "x")["ceilings"]["top1"]
    for claim, word in ((EVENT, "event"), (PIXELS, "pixels"), (METRIC, "distance")):
        found = report(claim, "x")
        assert found["ceilings"]["top1"] is None
        text = " ".join(lines(found))
        assert "naming one of" not in text and "not for" in text and word in text and "another" in text


def test_a_metric_claim_is_about_distance_one_and_replacement_costs_the_diameter():
    wide = FullClaim("image_metric", branches=(BranchClaim("z", "exponential", clip_norm=3, epsilon=1, rows=1),))
    found = report(wide, "x")
    row = next(r for r in found["conversions"] if r["to"].startswith("all images"))
    assert (found["epsilon"], row["possible"], row["epsilon"]) == (1.0, True, 6.0)
    two = FullClaim("image_metric", branches=(*wide.branches, BranchClaim("y", "exponential", clip_norm=3, epsilon=1)))
    row = next(r for r in report(two, "x")["conversions"] if r["to"].startswith("all images"))
    assert not row["possible"] and "diameter" in row["words"]


def test_conversions_say_the_rule_or_the_reason():
    rows = {r["to"]: r for r in report(gaussian(1.0), "x")["conversions"]}
    assert rows["a source video of 10 clips processed apart"]["mu"] == pytest.approx(math.sqrt(10))
    assert rows["a source video of 10 clips that read one another"]["mu"] == pytest.approx(10)
    assert rows["one frame of the clip"]["mu"] == pytest.approx(1)
    refused = [r for r in rows.values() if not r["possible"]]
    assert len(refused) == 5 and all(r["epsilon"] is r["mu"] is None and r["words"].endswith(".") for r in refused)
    three = {r["to"]: r for r in report(gaussian(1.0), "x", clips=3)["conversions"]}
    assert three["a source video of 3 clips processed apart"]["epsilon"] == pytest.approx(
        report(gaussian(1.0), "x", clips=3)["epsilon"])
    event = {r["to"]: r for r in report(EVENT, "x")["conversions"]}
    assert event["an event of 4 chunks in all"]["epsilon"] == pytest.approx(0.8)
    assert event["an event of 2 chunks in every window"]["epsilon"] == pytest.approx(4.0)
    assert event["an event visible for 2 s"]["possible"] and not event["an event visible for 4 s"]["possible"]
    label = {r["to"]: r for r in report(LABEL, "x")["conversions"]}
    assert label["the same unit, as zero-concentrated loss rho"]["rho"] == 32.0


def test_a_larger_event_in_every_window_costs_a_multiple_of_the_sum():
    """The chunk loads price events in all only; per window all windows add up and the cost is linear in K."""
    found = report(FullClaim("event", "per_window", event=EVENT.event), "x")
    rows = {r["to"]: r for r in found["conversions"]}
    assert found["epsilon"] == 4.0 and rows["an event of 4 chunks per window"]["epsilon"] == pytest.approx(8.0)
    assert rows["an event of 2 chunks in all"]["epsilon"] == pytest.approx(4.0)  # provable, though not tight


# ---- text and JSON -------------------------------------------------------------------------------------------------

CLAIMS = {"clip": gaussian(1.0), "video": gaussian(1.0, "source_video", clips=3), "frame": gaussian(0.5, "frame"),
          "pure": pure(8), "event": EVENT, "pixels": PIXELS, "label": LABEL, "metric": METRIC, "clear": CLEAR,
          "none": FullClaim("none"), "huge": gaussian(1e7), "clear event": FullClaim("event", branches=CLEAR.branches),
          "mixed": FullClaim("clip", clips=3, branches=(*gaussian(1.0).branches, *pure(0.5).branches)),
          "seconds": gaussian(1.0, horizon_seconds=12.5)}


@pytest.mark.parametrize("name", CLAIMS)
def test_every_report_is_plain_json_and_narrow_text(name):
    found = report(CLAIMS[name], "a-name-" * 30)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    text = lines(found)
    assert max(map(len, text)) <= 100 and not any("None" in line or "nan" in line for line in text)
    assert claim_from({"claim": found["claim"]}) == CLAIMS[name]
    assert (found["ceilings"] is None) == (found["epsilon"] == "inf") == (name in ("clear", "none", "clear event"))


def test_the_text_says_what_an_officer_must_know():
    found = report(parse_claim(EXAMPLE.read_text()), "tadp")
    text = "\n".join(lines(found))
    for words in ("epsilon = 1.76 nat at delta = 1e-05", "one clip of 16 frames", "at most 5.81 times as likely",
                  "at most 58.9 % of cases", "guessing", "Mironov", "CKS", "standard deviations", "Training membership",
                  "Metadata", "curator", "Several videos of one person", "It holds if", "does not follow"):
        assert words in text, words
    many = "\n".join(lines(report(parse_claim(EXAMPLE.read_text()), "tadp", clips=4)))
    assert "4 clips of 16 frames, all of them at once" in many and "with other clips instead" in many
    strong = "\n".join(lines(report(pure(12), "x")))
    assert "no limit at this epsilon" in strong and "100.0 %" not in strong
    assert "sets no limit" in "\n".join(lines(report(CLEAR, "x")))


def test_bounds_are_rounded_to_the_safe_side():
    assert [percent(0.58847, d) for d in ("at most", "at least", "")] == ["58.9 %", "58.8 %", "58.8 %"]
    assert percent(0.3, "at most") == percent(0.3, "at least") == "30.0 %" and percent(1.0, "at most") == "100.0 %"


def test_infinity_is_a_word():
    found = report(CLEAR, "x")
    assert found["epsilon"] == found["rho"] == found["epsilon_exact"] == "inf" and found["epsilon_pure"] is None
    assert found["conversions"] == [] and "pose" in found["assumptions"][0]


# ---- the command ---------------------------------------------------------------------------------------------------

def test_a_method_without_a_claim(cli):
    answer = cli("account", "blur@8")
    assert answer.code == 0 and "no formal claim" in answer.out and "infinite" in answer.out
    found = json.loads(cli("account", "blur", "--format", "json").out)
    assert (found["epsilon"], found["unit"], found["lane"], found["ceilings"]) == ("inf", "none", "none", None)


def test_the_claim_of_a_method_comes_from_its_facts(monkeypatch):
    from bench.run import workers

    facts = {"lane": "enforced", "full_claim": claim_to(EVENT)}
    monkeypatch.setattr(workers, "method_facts", lambda spec: facts)
    assert find("blur") == (EVENT, "blur", "enforced")


@pytest.mark.parametrize("words, said", [
    (["--delta", "0"], "--delta"), (["--delta", "-1"], "negative"), (["--delta", "nan"], "finite"),
    (["--delta", "2"], "--delta"), (["--clips", "0"], "--clips"), (["--clips", "-3"], "--clips"),
    (["--clips", "2000000"], "--clips"), (["--format", "yaml"], "--format")])
def test_absurd_options_are_named(cli, words, said):
    answer = cli("account", EXAMPLE, *words)
    assert answer.code == 2 and said in answer.err and answer.out == "" and "Traceback" not in answer.err


@pytest.mark.parametrize("name, said", [
    ("blurr", "Did you mean blur"), ("absent.toml", "cannot be read"), ("blur@nope", "nope"), ("", "neither"),
    (".", "folder")])
def test_wrong_names(cli, name, said):
    answer = cli("account", name)
    assert answer.code == 2 and said in answer.err and "Traceback" not in answer.err


def test_a_name_that_is_a_method_and_a_file(cli, tmp_path):
    (tmp_path / "blur").write_text(EXAMPLE.read_text())
    answer = cli("account", "blur")
    assert answer.code == 2 and "./blur" in answer.err
    assert "1.76" in cli("account", "./blur").out


def test_an_event_has_no_clips_and_a_horizon_grows_with_them():
    with pytest.raises(ConfigError, match="--clips"):
        report(EVENT, "x", clips=3)
    found = report(gaussian(1.0, horizon_seconds=12.5), "x", clips=4)
    assert (found["horizon"], found["horizon_seconds"]) == ("4 clips of 16 frames", 50.0)


# ---- claims as tables ----------------------------------------------------------------------------------------------

fractions = st.fractions(min_value=Fraction(1, 1000), max_value=100, max_denominator=10**6)
floats = st.floats(1e-6, 1e6)
rows = st.none() | st.integers(1, 1000)
noisy = st.one_of(
    st.builds(dict, noise=st.just("gaussian"), clip_norm=floats, noise_std=floats, norm=st.sampled_from(["l2", "l1",
              "box"]), dim=st.integers(1, 2048), rows=rows),
    st.builds(dict, noise=st.just("discrete_laplace"), clip_norm=floats, scale=fractions, dim=st.integers(1, 99),
              norm=st.sampled_from(["l2", "l1", "box"])),
    st.builds(dict, noise=st.just("exponential"), clip_norm=floats, epsilon=fractions, rows=rows),
    st.builds(dict, noise=st.just("randomized_response"), epsilon=fractions, norm=st.just("label"),
              classes=st.none() | st.integers(2, 99)),
    st.builds(dict, noise=st.sampled_from([None, "gausian"]), noise_std=st.none() | floats, clip_norm=floats))
shared = {"delta": st.floats(1e-12, 0.1), "clips": st.integers(1, 50), "frames": st.integers(1, 64),
          "horizon_seconds": st.none() | st.floats(0.1, 1e6) | st.integers(1, 99),
          "horizon": st.sampled_from(["", "a day"]), "reads": st.lists(st.sampled_from(["id", "pose"])).map(tuple)}


@st.composite
def claims(draw):
    unit = draw(st.sampled_from(list(ADJACENCIES)))
    more = {key: draw(value) for key, value in shared.items()} | {"adjacency": draw(st.sampled_from(ADJACENCIES[unit]))}
    shares = draw(st.integers(1, 4))
    if unit == "event":
        more["event"] = EventClaim(
            draw(st.integers(1, 60)), draw(st.integers(1, 9)), tuple(draw(fractions) for _ in range(shares)),
            tuple(draw(st.lists(fractions, min_size=1, max_size=9))), (Fraction(1, shares),) * shares,
            draw(rows), draw(st.none() | fractions), draw(st.sampled_from(["sum", "max"])))
    elif unit == "pixels":
        more["pixels"] = PixelsClaim(draw(st.integers(1, 999)), 8, **draw(st.sampled_from([
            {"scale": Fraction(7, 3)}, {"epsilon": Fraction(1, 3), "channels": 1, "levels": 1023}])))
    elif unit == "label":
        more["label"] = LabelClaim(draw(st.integers(2, 99)), draw(fractions), draw(st.integers(1, 9)))
    else:
        more["branches"] = tuple(BranchClaim(f"b{i}", **draw(noisy)) for i in range(draw(st.integers(0, 3))))
    return FullClaim(unit, **more)


@relaxed
@given(claims())
def test_a_claim_survives_its_table(claim):
    table = claim_to(claim)
    assert claim_from(table) == claim
    assert claim_from(json.loads(json.dumps(table, allow_nan=False))) == claim


SEVERAL_CAPS = FullClaim("event", event=EventClaim(30, 2, (20, 6, 1, 1), ("2/5",), (Fraction(1, 4),) * 4))
LABEL_IN_CLEAR = FullClaim("label", branches=(BranchClaim("label"),))


@pytest.mark.parametrize("claim", [SEVERAL_CAPS, LABEL_IN_CLEAR], ids=["one cap an expert", "label in clear"])
def test_claims_with_several_caps_or_a_label_in_clear_survive_their_table(claim):
    assert claim_from(claim_to(claim)) == claim


@pytest.mark.parametrize("name", [*CLAIMS, "example"])
def test_these_claims_survive_their_table(name):
    claim = CLAIMS[name] if name in CLAIMS else parse_claim(EXAMPLE.read_text())
    assert claim_from(json.loads(json.dumps(claim_to(claim), allow_nan=False))) == claim


# ---- the card on a page --------------------------------------------------------------------------------------------

class Outline(HTMLParser):
    """Texts, and whether every element that opens is closed again."""

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.scripts = [], [], 0

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.scripts += tag == "script" or any(key.startswith("on") for key, _ in attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def rendered(**more) -> tuple[str, Outline]:
    page = _environment().get_template("_privacy_card.html.j2").render(**more)
    outline = Outline()
    outline.feed(page)
    assert not outline.open and not outline.scripts
    return page, outline


@pytest.mark.parametrize("name", CLAIMS)
def test_the_card_renders_for_every_claim(name):
    made = card(report(CLAIMS[name], "<b>x</b>"))
    text = re.sub(r"\s+", " ", " ".join(rendered(card=made)[1].texts))
    assert made["unit"] in text and made["horizon"] in text and "None" not in text
    assert ("ε is infinite" in text) == made["infinite"] and ("Training membership" in text) != made["infinite"]
    assert all(row["bound"] in text for row in made["ceilings"]) and all(words in text for words in made["conditions"])


def test_the_card_shows_lane_isolation_noise_and_audit():
    found = report(parse_claim(EXAMPLE.read_text()), "tadp")
    isolation = {"level": 2, "layers": ["namespaces", "Landlock"], "text": "No network & no disk.", "green": True}
    made = card(found, lane="enforced", isolation=isolation, noise="seeded",
                audit={"bound": 0.71, "claim": 1.76, "n": 1000, "refuted": False})
    page, outline = rendered(card=made)
    text = re.sub(r"\s+", " ", " ".join(outline.texts))
    for words in ("enforced", "isolation level 2", "benchmark only: seeded noise", "Layers in force", "0.64 s",
                  "1000 releases", "at least 0.71", "never prove", "epsilon, exact", "1.76", "2.246", "1.914", "0.4472",
                  "1e-05"):
        assert words in text, words
    assert "No network &amp; no disk." in page and len(made["conditions"]) == 3
    refuted = card(found, noise="os", audit={"bound": 9.0, "claim": 1.76, "n": 1000, "refuted": True})
    text = " ".join(rendered(card=refuted)[1].texts)
    assert "The claim is refuted" in text and "operating system noise" in text
    with pytest.raises(ConfigError, match="lane|known"):
        card(found, lane="enforcd")


@pytest.mark.parametrize("given_card, there", [({}, False), ({"card": None}, False), ({"card": 1}, True)])
def test_the_method_page_shows_the_card_only_when_it_is_given(given_card, there):
    if there:
        given_card = {"card": card(report(EVENT, "x"))}
    method = {"title": "T", "lane": "none", "publishable": True, "needs": [], "command": "c", "stages": [],
              "source_file": "f", "digest": "d", "versions": {}}
    page = _environment().get_template("method.html.j2").render(
        root="../", page="m", method=method, name="m", claim=[], doc=[], strips=[], numbers=[], relatives=[],
        diagnostics=[], limits=[], samples=[], siblings=[], pages={}, built="", environment={}, **given_card)
    assert ('id="privacy-card"' in page) is there and "What it promises" in page
