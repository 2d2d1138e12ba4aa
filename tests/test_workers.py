"""Method code in its own process: every fault becomes a PluginError that names it, and nothing hangs."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from conftest import alive_after, descendants

from bench import Video, registry
from bench.data.clips import Clips
from bench.errors import PluginError
from bench.registry import Spec
from bench.run.views import load_tensors, save_tensors, write_development_view
from bench.run.workers import MethodWorker, family_facts, method_facts
from bench.seeds import derive

FAULTS = {
    "raises": "ZeroDivisionError: the sum of nothing.*faulty.py, line",
    "nan": r"uint8 \(T, H, W, 3\), got float64.*At faulty.py, line 31",
    "shape": r"returned uint8 \(5, 15, 16, 3\), wanted uint8 \(5, 16",
    "length": r"returned uint8 \(4, 16, 16, 3\), wanted uint8 \(5,", "none": "returned NoneType, not a Video",
    "array": "returned ndarray, not a Video", "fps": "changed fps from 23.976 to 28.976",
    "writes": "writes to its input",
    "dies": "ended during 'release'.*exit code 7", "exits": "SystemExit: 3",
    "killed": "ended during 'release'.*signal 9",
    "late": "ModuleNotFoundError: No module named 'no_such_package_anywhere'", "asks": "EOFError"}


def video() -> Video:
    frames = derive(1, "workers").integers(0, 256, (5, 16, 16, 3)).astype(np.uint8)
    frames.flags.writeable = False
    return Video(frames, 23.976)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_release_is_named(fault):
    given = video()
    before = given.frames.copy()
    with MethodWorker(Spec("faulty", fault), "tiny", call_s=60) as worker:
        with pytest.raises(PluginError, match=f"(?s)faulty@{fault}.*{FAULTS[fault]}|{FAULTS[fault]}") as caught:
            worker.release(given, 1)
        assert f"faulty@{fault}" in str(caught.value) and "\n" not in str(caught.value).strip()
        np.testing.assert_array_equal(given.frames, before)


def test_what_a_method_prints_goes_to_the_log_and_not_into_the_answer(capfd):
    with MethodWorker(Spec("faulty", "prints"), "tiny") as worker:
        for _ in range(2):
            np.testing.assert_array_equal(worker.release(video(), 1).frames, 255 - video().frames)
    out, err = capfd.readouterr()
    assert "spoken by the method" in err and "written past Python" in err and not out


@pytest.mark.parametrize("fault", ["hangs", "subprocess"])
def test_a_method_that_hangs_is_ended(fault):
    with MethodWorker(Spec("faulty", fault), "tiny", call_s=0.5) as worker:
        below = descendants(os.getpid())
        began = time.monotonic()
        with pytest.raises(PluginError, match="did not answer 'release' within"):
            worker.release(video(), 1)
        assert time.monotonic() - began < 20
        with pytest.raises(PluginError):
            worker.release(video(), 1)
        pid = worker.process.pid
    assert not alive_after({p for p in below if p[0] == pid}, 10)


def test_a_worker_that_survives_a_fault_can_go_on():
    with MethodWorker(Spec("faulty", "raises"), "tiny") as worker:
        for _ in range(2):
            with pytest.raises(PluginError, match="the sum of nothing"):
                worker.release(video(), 1)


def test_the_process_is_gone_after_use():
    with MethodWorker(Spec("original"), "tiny") as worker:
        assert worker.process.poll() is None
    assert worker.process.poll() is not None


@pytest.fixture
def spoilt(monkeypatch, tmp_path):
    """A method file that fails while it is imported or built."""
    def make(name: str, text: str) -> Spec:
        path = tmp_path / f"{name}.py"
        path.write_text("from bench import Anonymizer, method\n\n\n" + text, encoding="utf-8")
        monkeypatch.setenv(registry.EXTRA, str(path))
        return Spec(name)
    return make


@pytest.mark.parametrize("text, said", [
    ('import os\nos._exit(9)\n@method("spoilt")\nclass A(Anonymizer): ...\n', "during 'load'.*exit code 9"),
    ('raise OSError("no luck")\n@method("spoilt")\nclass A(Anonymizer): ...\n', "OSError: no luck"),
    ('@method("spoilt")\nclass A(Anonymizer):\n    def __init__(self):\n        1 / 0\n', "ZeroDivisionError"),
    ('@method("other")\nclass A(Anonymizer): ...\n', "registers no method called 'spoilt'"),
    ('@method("spoilt")\nclass A(Anonymizer): ...\n', None)])
def test_a_fault_while_loading_is_named_and_leaves_no_process(spoilt, text, said):
    spec = spoilt("spoilt", text)
    before = descendants(os.getpid())
    if said is None:  # `release` is not written
        with MethodWorker(spec, "tiny") as worker, pytest.raises(PluginError, match="NotImplementedError"):
            worker.release(video(), 1)
    else:
        with pytest.raises(PluginError, match=said):
            MethodWorker(spec, "tiny").__enter__()
    assert not alive_after(descendants(os.getpid()) - before, 10)


def test_facts_come_from_a_worker_and_hold_the_claim():
    facts = method_facts(Spec("learner"))
    assert facts["fits"] and facts["needs"] == ["expression"] and facts["lane"] == "none"
    assert facts["claim"]["epsilon"] == "inf" and float(facts["claim"]["epsilon"]) == float("inf")
    assert facts["variants"] == ["diverges", "nan", "undeclared", "unknown", "words"] and facts["control"] is None
    assert "mean colour" in facts["doc"]


def test_one_worker_tells_the_facts_of_all_variants_that_can_be_built(monkeypatch, spoilt):
    started = []
    enter = MethodWorker.__enter__
    monkeypatch.setattr(MethodWorker, "__enter__", lambda self: started.append(self.spec) or enter(self))
    spec = spoilt("spoilt", '@method("spoilt")\nclass A(Anonymizer):\n'
                            '    """Grey."""\n\n    variants = {"a": {}, "bad": {"level": 3}, "c": {"level": 1}}\n\n'
                            '    def __init__(self, *, level: int = 0):\n'
                            '        self.random_release = 1 / (3 - level) > 0.4\n')
    found = family_facts(Spec(spec.name, "c"))
    assert [s.variant for s in found] == ["c", None, "a"] and len(started) == 1
    assert {s.variant: f["random_release"] for s, f in found.items()} == {"c": True, None: False, "a": False}
    with pytest.raises(PluginError, match="division by zero"):
        family_facts(Spec(spec.name, "bad"))


def test_the_worker_sees_a_scrubbed_environment(monkeypatch, spoilt):
    monkeypatch.setenv("A_SECRET_OF_THE_HARNESS", "1")
    spec = spoilt("spoilt", 'import os\n\n\n@method("spoilt")\nclass A(Anonymizer):\n'
                            '    def release(self, video, rng):\n'
                            '        raise KeyError(sorted(os.environ), os.getcwd())\n')
    with MethodWorker(spec, "tiny") as worker, pytest.raises(PluginError) as caught:
        worker.release(video(), 1)
    assert "OMP_NUM_THREADS" in str(caught.value) and "A_SECRET" not in str(caught.value)
    assert "'/'" in str(caught.value)


# ---- fit -----------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def development(tmp_path_factory, small):
    """A development view with the label `expression` only, and the clips behind it."""
    clips = Clips(small)
    return write_development_view(clips, ["expression"], 3, tmp_path_factory.mktemp("development") / "view"), clips


def fitted(variant, development, seed=5):
    with MethodWorker(Spec("learner", variant), "tiny") as worker:
        return worker.fit(development[0], {}, seed)


def test_fit_reads_declared_labels_and_is_seeded(development):
    view, clips = development
    state = fitted(None, development)
    chosen = [clips.video(r).frames.mean((0, 1, 2)) for r in clips.rows("train") if r.label == clips.labels[0]]
    np.testing.assert_allclose(state["colour"], np.mean(chosen, axis=0))
    assert fitted(None, development)["draw"].tobytes() == state["draw"].tobytes()
    assert fitted(None, development, 6)["draw"].tobytes() != state["draw"].tobytes()


def test_an_undeclared_label_raises(development):
    with pytest.raises(PluginError, match="reads the label 'identity'.*Add \"identity\" to `needs`"):
        fitted("undeclared", development)
    with pytest.raises(PluginError, match="AttributeError: name"):
        fitted("unknown", development)


def test_the_view_holds_no_undeclared_label_and_no_name(development):
    view, clips = development
    text = b"".join(p.name.encode() + p.read_bytes() for p in view.iterdir())
    assert b'"expression"' in text and b"identity" not in text and b"attributes" not in text
    for row in clips.rows():
        assert row.video.encode() not in text and row.person.encode() not in text
    test_bytes = {(clips.folder / "media" / r.file).read_bytes() for r in clips.rows("test")}
    assert not test_bytes & {p.read_bytes() for p in view.glob("*.mkv")}


def test_a_state_that_is_not_finite_is_refused(development):
    with pytest.raises(PluginError, match="not finite in 'bad'"):
        fitted("nan", development)


def test_a_state_that_cannot_travel_is_refused(development):
    with pytest.raises(PluginError, match="learner@words"):
        fitted("words", development)


def test_a_state_goes_through_a_file_into_another_worker(development, tmp_path):
    state = fitted(None, development)
    save_tensors(tmp_path / "state.safetensors", state)
    loaded = load_tensors(tmp_path / "state.safetensors")
    assert {k: v.tobytes() for k, v in loaded.items()} == {k: v.tobytes() for k, v in state.items()}
    with MethodWorker(Spec("learner"), "tiny") as worker:
        worker.load_state(loaded)
        frames = worker.release(video(), 1).frames
    assert (frames == state["colour"].astype(np.uint8)).all()
    save_tensors(tmp_path / "nothing.safetensors", {})
    assert load_tensors(tmp_path / "nothing.safetensors") == {}
