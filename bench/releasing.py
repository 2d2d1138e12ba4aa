"""`veilbench release`: a user's own video through one method, described line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import registry
from bench.errors import ConfigError
from bench.registry import Spec
from bench.run.cache import WorkFolder

if TYPE_CHECKING:
    from bench.run.clip_release import ClipReleaseReport


def release_video(method: str, source: Path, output: Path, lossless: bool, workdir: Path,
                  camera: Path | None = None) -> Iterator[str]:
    """Run a method on a user's own video and describe what came out. camera: folder of a fixed camera's public facts,
    for methods of the traffic track; the video's own folder by default.
    """
    from bench import seeds
    from bench.run.clip_release import release_declared
    from bench.run.frame_release import release_file
    from bench.run.views import load_tensors
    from bench.run.workers import MethodWorker
    from bench.types import Video

    spec, seed = Spec.parse(method), seeds.fresh()
    registry.locate("methods", spec.name)
    with MethodWorker(spec, "tiny") as worker:
        facts = worker.call({"op": "facts"})[0]
        if facts.get("atom") == "chunk":
            yield from _reports(spec, facts, source, output, lossless, workdir, camera)
            return
        if camera is not None:
            raise ConfigError("--camera does not go with a method of faces.", "It names what is public about a fixed "
                              "traffic camera.", "Leave it out.")
        state = load_tensors(_fitted(WorkFolder(workdir), spec)) if facts["fits"] else {}
        if facts["lane"] == "enforced":
            yield from _with_claim(spec, facts, state, source, output, lossless)
            return
        if facts["fits"]:
            worker.load_state(state)
        if facts["lane"] == "declared":
            done = release_declared(worker, facts, source, output, lossless=lossless)
            yield from _card_of(done, spec, output, "Noise of the operating system, drawn by the method and counted; "
                                                    "the claim is declared, not enforced.")
            return
        report = release_file(
            source, output, lambda frames, fps, names: worker.release(
                Video(frames, float(fps)), seeds.derive_int(seed, "release-file", *names)).frames, lossless=lossless)
        counts = worker.call({"op": "counts"})[0]["counts"]
    yield f"Wrote {output}: {report.frames} frames, {report.width} x {report.height}, {float(report.fps):.3f} fps."
    yield f"A face was found in {report.seen} frames; {report.covered} more were covered from their neighbours."
    for reason, count in sorted(report.greyed.items()):
        yield f"{count} frames were greyed whole: {reason}."
    for name, count in sorted(counts.items()):
        yield f"The method says of the face crops: {name}: {count}."
    if report.unchanged:
        yield f"WARNING: {report.unchanged} frames left the method as they came; this method hides nothing."
    yield f"Privacy card: {spec}, lane {facts['lane']}, epsilon = infinity: no formal guarantee. " \
          "Sound and metadata were dropped; voice, body, place and text in the picture are not hidden."


def _reports(spec: Spec, facts: Mapping[str, Any], source: Path, output: Path, lossless: bool, workdir: Path,
             camera: Path | None) -> Iterator[str]:
    """The transcript of a fixed camera's video and its privacy card."""
    from bench.account import lines, report
    from bench.data.camera.folder import camera_of
    from bench.run.report_release import check_output, owners_lines, release_reports, write_transcript
    from bench.run.views import load_tensors

    if lossless or facts["lane"] == "declared":
        word = "--lossless" if lossless else f"The claim of {spec} is only declared, and that"
        raise ConfigError(f"{word} does not go with a release of reports.",
                          "No picture is written, and only the harness may draw their noise.",
                          "Leave it out." if lossless else "Choose a method of the lane enforced.")
    check_output(source, output)
    state = load_tensors(_fitted(WorkFolder(workdir), spec)) if facts["fits"] else {}
    made = release_reports(spec, facts, state, source, camera_of(camera or source.parent))
    card = [f"Noise of the operating system, drawn by the harness; isolation {made.isolation.text}",
            "Until a part is released for the first time, the public median of the recordings on which the method was "
            "fitted stands in its place.", "", *lines(report(made.claim, str(spec)) | {"lane": facts["lane"]})]
    write_transcript(output, spec, facts, made, card)
    yield f"Wrote {output} and {output.with_suffix('.txt').name}: one report for each of {len(made.reports)} " \
          "minutes, nothing of the pictures."
    yield from (f"  {r.text}" for r in made.reports)
    yield from card
    yield from owners_lines(made)


def _with_claim(spec: Spec, facts: Mapping[str, Any], state: Mapping[str, Any], source: Path, output: Path,
                lossless: bool) -> Iterator[str]:
    """The crop video of an enforced method and its privacy card."""
    from bench.run.clip_release import release_clips

    done = release_clips(spec, facts, state, source, output, lossless=lossless)
    yield from _card_of(done, spec, output, "Noise of the operating system, drawn by the harness; "
                                            f"isolation {done.isolation.text if done.isolation else 'none'}")


def _card_of(done: ClipReleaseReport, spec: Spec, output: Path, noise: str) -> Iterator[str]:
    from bench.account import lines, report

    counted = f"{done.clips} clip{'s' if done.clips > 1 else ''} of {done.clip_frames}"
    yield f"Wrote {output}: {done.frames} frames, {counted}; the face crop alone, because nothing outside it would " \
          "be covered by the claim."
    if done.frames < done.clip_frames:
        yield f"The source has {done.frames} frames, fewer than one clip: its last frame was repeated up to " \
              f"{done.clip_frames}, the claim counts all of them, and the repeated ones were cut off again."
    if done.centre_boxes:
        yield f"No face was found in {done.centre_boxes} of {done.clips} clips: the centre of the picture was used." + (
            " If the video shows a face, bring it closer or upright; what was released need not show one."
            if done.centre_boxes == done.clips else "")
    yield noise
    yield ""
    yield from lines(report(done.claim, str(spec)))


def _fitted(work: WorkFolder, spec: Spec) -> Path:
    """The newest fitted state of just this method: one that another version of its code left says nothing to this."""
    found = [r for r in work.finished("fit") if (r["identity"]["config"]["method"],
                                                 r["identity"]["config"]["variant"]) == (spec.name, spec.variant)]
    source = registry.source_digest("methods", spec.name)
    fresh = [r for r in found if r["identity"]["plugins"].get(f"methods/{spec.name}") == source]
    if not fresh:
        why = "It was fitted by another version of its code." if found else "It learns from development people first."
        raise ConfigError(f"{spec} is not fitted in {work.root}.", why,
                          f"Run a suite with --method {spec}, then release with the same --workdir.")
    return max(fresh, key=lambda r: r["finished"])["folder"] / "state.safetensors"
