"""What a method page says that the noise allows: every number from the row's cells, against the closed forms."""

from __future__ import annotations

import math
import re

import pytest
from scipy.stats import norm

from bench.board import SiteData, build_site
from bench.limits import limits
from bench.privacy.ceilings import Loss, top1
from bench.privacy.conversions import epsilon_exact

MU = 1.666030598  # of an exact epsilon of 8 at 1e-5
BASE = {
    "variant": None, "dataset": "synthfaces", "profile": "tiny", "lane": "none", "unit": "none", "adjacency": "none",
    "horizon": "none", "epsilon": math.inf, "delta": 0.0, "attack": None, "evaluator": None, "via": "direct",
    "decoding": "assembled", "metric_unit": "rate", "better": "lower", "role": "privacy", "title": "", "chance": 1 / 9,
    "ceiling": None, "n": 300, "people": 9, "draws": 1, "seeds": [42], "status": "ok", "source": "measured",
    "digest": "feedfacecafe", "split": "0123456789ab", "params": None, "text": None, "control": None, "details": None,
    "person_values": {}, "track": "face"}
CLAIM = {"method": "tadp", "lane": "enforced", "unit": "clip", "adjacency": "replace",
         "horizon": "1 clip of 16 frames", "epsilon": 8.0, "delta": 1e-5}


def cell(metric, value, **fields):
    return {**BASE, "metric": metric, "value": value, "lo": value - 0.05, "hi": value + 0.05, **fields}


def read(value=0.19, clips=1, **fields):
    ceiling = norm.cdf(norm.ppf(1 / 6) + MU / 2 * math.sqrt(clips))
    return cell("fer", value, **{"evaluator": "x3d", "role": "utility", "better": "higher", "chance": 1 / 6,
                                 "ceiling": ceiling, "details": {"clips_read": {"1": 3, str(clips): 9}}, **CLAIM,
                                 **fields})


def named(**fields):
    return cell("top1", 0.12, attack="plr", ceiling=norm.cdf(norm.ppf(1 / 9) + MU / 2), **{**CLAIM, **fields})


def said(*cells) -> str:
    found = limits(cells, "tadp")
    assert len(found) == 1 and found[0]["dataset"] == "synthfaces"
    return " ".join(found[0]["sentences"]).replace("\N{NARROW NO-BREAK SPACE}", " ")


def scales(length, scale):
    return [cell(metric, value, attack="scales", role="diagnostic", params={"branch": b}, metric_unit="1", **CLAIM)
            for b in ("id", "expr") for metric, value in (("signal_norm", length), ("scale_mean", scale))]


def test_expression_and_person_stand_side_by_side_with_what_the_claim_allows():
    text = said(read(), named())
    assert "epsilon 8 for one clip" in text
    assert "one of 6 expressions in more than 44.7 % of these videos (chance 16.7 %); fer@x3d names 19.0 %" in text
    assert "one of 9 people in more than 34.9 % (chance 11.1 %); plr top1 names 12.0 %" in text


def test_what_was_really_released_allows_less():
    away = math.sqrt(16 * 2 * 0.1**2)  # 16 frames, two branches, a tenth of the noise each
    text = said(read(clips=2), *scales(0.5, 5.0))
    assert f"lies {away:.2f} standard deviations" in text and f"allows {MU / 2:.2f}" in text
    one, two = (norm.cdf(norm.ppf(1 / 6) + away * math.sqrt(k)) for k in (1, 2))  # 3 videos of one clip, 9 of two
    assert f"above {100 * (3 * one + 9 * two) / 12:.1f} %." in text
    assert "standard deviations" not in said(read())  # without the diagnostic nothing is said


def test_what_would_be_needed_follows_from_the_row_without_noise():
    free = read(0.7, variant="no_noise", epsilon=math.inf, ceiling=None)
    mu = 2 * (norm.ppf(0.7) - norm.ppf(1 / 6))
    text = said(read(), named(), free)
    assert "tadp@no_noise, without noise, is read at 70.0 %" in text
    wanted = float(re.search(r"epsilon ([\d.]+) or more", text)[1])
    assert wanted == pytest.approx(epsilon_exact(mu, 1e-5), abs=0.05)
    bound = top1(Loss("gaussian", mu=mu, norm_clipped=True), 9).bound
    assert f"up to {100 * bound:.1f} % of 9 people" in text
    assert "original, without noise, is read at 80.0 %" in said(read(), cell(
        "fer", 0.8, method="original", evaluator="x3d", chance=1 / 6))
    assert "would have to be" not in said(read(), read(0.4, variant="no_noise", ceiling=None))  # allowed as it is


def test_numbers_move_with_the_cells():
    assert said(read(0.19)) != said(read(0.21)) and "or more" not in said(read(), named())


@pytest.mark.parametrize("change", [{"lane": "none"}, {"unit": "pixels"}, {"ceiling": None}, {"via": "recover_unet"},
                                    {"status": "invalid: it crashed"}, {"role": "diagnostic"}])
def test_nothing_is_said_where_no_claim_limits_what_was_read(change):
    assert limits([read(**change), named()], "tadp") == [] == limits([read(), named()], "blur")


def test_a_claim_of_another_law_gets_its_ceilings_and_no_more():
    pure = read(delta=0.0, ceiling=0.95)
    assert "would have to be" not in said(pure, named(), read(0.97, variant="no_noise", ceiling=None))
    box = read(ceiling=0.6019)  # Theorem 6: rows are not clipped to a ball
    assert "would have to be" not in said(box, named(), read(0.97, variant="no_noise", ceiling=None))


def test_the_page_prints_it(tmp_path):
    info = {"name": "tadp", "variant": None, "title": "TADP", "doc": "Does it.", "lane": "enforced", "claim": CLAIM,
            "needs": [], "source_file": "methods/tadp.py", "digest": "ab" * 32, "publishable": False, "strips": [],
            "stages": [], "versions": {}, "command": "veilbench run tadp"}
    build_site(SiteData([read(), named()], [info]), tmp_path / "site")
    text = (tmp_path / "site" / "methods" / "tadp.html").read_text(encoding="utf-8")
    assert "What this noise allows, on synthfaces, tiny profile" in text and "in more than 44.7" in text
