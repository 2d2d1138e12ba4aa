"""What `veilbench site ...` and `veilbench db ...` do: the index of a work folder, and the pages made from it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import exchange, store
from bench.commands import database, existing
from bench.errors import ConfigError, WorkFolderError
from bench.run.cache import WorkFolder


def build_site_at(workdir: Path, out: Path | None) -> Path:
    """Build the site; returns its first page."""
    from bench.board import build_site
    from bench.publish import site_data

    out = out or workdir / "site"
    with tempfile.TemporaryDirectory() as folder:
        data = site_data(WorkFolder(workdir), database(workdir), Path(folder))
        with _written_to(out):
            build_site(data, out)
    return out / "index.html"


def serve(folder: Path, port: int) -> None:
    """Serve a built site on the loopback address until Ctrl-C."""
    import functools
    import http.server

    if not (folder / "index.html").is_file():
        raise WorkFolderError(f"There is no site in {folder}.", "", "Build it with `veilbench site build`.")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        raise ConfigError(f"Port {port} cannot be used: {error.strerror}.", "",
                          "Give another one with --port.") from error
    with server:
        print(f"http://127.0.0.1:{port}/  (Ctrl-C ends it)", flush=True)
        server.serve_forever()


def rebuild(workdir: Path) -> dict[str, int]:
    work = existing(workdir)
    with work.open_for_writing():
        return store.rebuild(work, database(workdir))


def check_db(workdir: Path) -> list[str]:
    return store.check(existing(workdir), database(workdir))


def export_db(workdir: Path, out: Path) -> list[Path]:
    with _written_to(out):
        return exchange.export(database(workdir), out)


def import_db(workdir: Path, source: Path) -> str:
    """Add an export to a work folder; says in one line what came in."""
    work = WorkFolder(workdir)
    with work.open_for_writing():
        known = set((work.root / "imports").glob("*"))
        target = exchange.import_folder(work, source)
        counts = store.rebuild(work, database(workdir))
    rows = f"{exchange.rows_of(target, 'cells')} numbers"
    return f"{source} was imported into {workdir} before: {rows}." if target in known else \
        f"Imported {rows} from {source}; {workdir} now holds {counts['cells']} numbers."


@contextlib.contextmanager
def _written_to(out: Path) -> Iterator[None]:
    """Raises ConfigError where the operating system refuses to write there."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{error.filename or out} cannot be written: {error.strerror}.", "",
                          "Name a folder that you may write to.") from error
