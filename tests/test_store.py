"""The index: made again from the folders, checked against them, moved between machines."""

from __future__ import annotations

import hashlib
import json
import re
import shutil

import duckdb
import pyarrow.parquet as pq
import pytest
from conftest import SUITE

from bench import exchange, store
from bench.data.clips import Clips
from bench.errors import ConfigError, DataError, WorkFolderError
from bench.run.cache import WorkFolder, write_json


def tables(path) -> dict[str, list]:
    with store.opened(path) as con:
        return {n: sorted(map(str, con.execute(f"SELECT * FROM {n}").fetchall())) for n in store.TABLES}


@pytest.fixture
def database(copied):
    return copied / "veilbench.duckdb"


def test_a_rebuild_gives_the_same_tables(copied, database, cli):
    before = tables(database)
    database.unlink()
    answer = cli("db", "rebuild", "--workdir", copied)
    assert answer.code == 0 and tables(database) == before
    assert all(before[n] for n in store.TABLES if n != "exclusions")
    assert cli("db", "check", "--workdir", copied).code == 0


def test_published_values_are_means_over_the_trials(road):
    cells = store.read_cells(road / "veilbench.duckdb")
    with store.opened(road / "veilbench.duckdb") as con:
        for cell in cells:
            if cell["statistic"] == "mean":
                (again,) = con.execute('SELECT avg(m) FROM (SELECT avg(value) AS m FROM trials WHERE score = ? AND '
                                       '"column" = ? GROUP BY person)', [cell["score"], cell["metric"]]).fetchone()
                assert cell["value"] == pytest.approx(again, rel=1e-9)


@pytest.mark.parametrize("statement, said", [
    ("UPDATE cells SET value = value + 0.01 WHERE metric = 'psnr_released' AND method = 'blackout'",
     r"cell \w+ \(blackout, psnr_released\) is .*its trials give"),
    ("DELETE FROM trials WHERE rowid = 5", "table trials differs"),
    ("DELETE FROM cells WHERE attack = 'plr'", "table cells differs"),
    ("UPDATE cells SET lo = 0.1 WHERE attack = 'plr'", "table cells differs"),
    ("UPDATE trials SET value = 1 - value WHERE \"column\" = 'uar'", "table trials differs"),
    ("DELETE FROM artifacts WHERE kind = 'asset'", "table artifacts differs"),
    ("INSERT INTO exclusions VALUES ('a', 'b')", "table exclusions differs")])
def test_a_tampered_database_is_noticed(copied, database, cli, statement, said):
    with duckdb.connect(str(database)) as con:
        con.execute(statement)
    answer = cli("db", "check", "--workdir", copied)
    assert answer.code == 1 and re.search(said, answer.out)
    assert cli("db", "rebuild", "--workdir", copied).code == 0
    assert cli("db", "check", "--workdir", copied).code == 0


@pytest.mark.parametrize("spoil", ["damaged", "empty", "schema", "foreign", "missing"])
@pytest.mark.parametrize("words", [("table", "summary"), ("db", "check"), ("run", "demo", "--dry-run"),
                                   ("site", "build"), ("explain", "blur@2/plr/top1")])
def test_a_database_that_cannot_be_read_says_how_to_rebuild(copied, database, cli, spoil, words):
    if spoil in ("damaged", "empty"):
        database.write_bytes(b"no database at all" * 1000 if spoil == "damaged" else b"")
    elif spoil == "schema":
        with duckdb.connect(str(database)) as con:
            con.execute("UPDATE meta SET schema_version = 999")
    else:
        database.unlink()
        if spoil == "foreign":
            duckdb.connect(str(database)).close()
    if spoil == "missing" and words[0] == "run":
        pytest.skip("a run makes the database")
    answer = cli(*words, "--workdir", copied)
    assert answer.code == 2 and "veilbench db rebuild" in answer.err and "Traceback" not in answer.err
    assert len(answer.err.strip().splitlines()) == 1


def test_a_damaged_database_is_not_overwritten_and_can_be_rebuilt(copied, database, cli):
    database.write_bytes(b"not a database")
    assert cli("run", "demo", "--workdir", copied).code == 2
    assert database.read_bytes() == b"not a database"
    assert cli("db", "rebuild", "--workdir", copied).code == 0 and len(store.read_cells(database)) == 15


def test_a_folder_that_is_no_work_folder_is_refused(cli, tmp_path):
    for words in (("db", "rebuild"), ("db", "check"), ("status",)):
        answer = cli(*words, "--workdir", tmp_path / "nothing")
        assert answer.code == 2 and "no work folder" in answer.err and not (tmp_path / "nothing").exists()


def test_the_database_is_written_aside(copied, database, monkeypatch):
    before = database.read_bytes()

    def broken(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "_create", broken)
    with pytest.raises(OSError):
        store.rebuild(WorkFolder(copied), database)
    assert database.read_bytes() == before


def test_there_is_one_writer(copied, cli):
    with WorkFolder(copied).open_for_writing():
        for words in (("db", "rebuild"), ("db", "import", copied)):
            answer = cli(*words, "--workdir", copied)
            assert answer.code == 2 and "in use by process" in answer.err
        assert cli("table", "summary", "--workdir", copied).code == 0  # reading needs no lock


def test_a_cell_is_found_by_name_or_id(road):
    cells = store.read_cells(road / "veilbench.duckdb")
    for name in ("original/plr/top1", "blur@2/psnr_released", "blackout/uar@x3d"):
        cell = store.find_cell(cells, name)
        assert store.find_cell(cells, cell["id"]) is store.find_cell(cells, cell["id"][:6]) is cell
    with pytest.raises(ConfigError, match="Did you mean.*blur@2/plr/top1"):
        store.find_cell(cells, "blur/plr/top1")


def test_a_changed_source_makes_a_number_stale_and_an_unknown_one_does_not(road, monkeypatch):
    real = store.registry.source_digest
    monkeypatch.setattr(store.registry, "source_digest", lambda k, n: "x" if n == "plr" else real(k, n))
    cells = store.read_cells(road / "veilbench.duckdb")
    assert {c["status"] for c in cells if c["attack"] == "plr"} == {"stale"}
    assert {c["status"] for c in cells if c["attack"] != "plr"} == {"ok"}
    assert "attacks/plr changed" in next(c["text"] for c in cells if c["attack"] == "plr")

    def gone(kind, name):
        raise ConfigError("not here")

    monkeypatch.setattr(store.registry, "source_digest", gone)
    assert {c["status"] for c in store.read_cells(road / "veilbench.duckdb")} == {"ok"}


def test_a_newer_score_replaces_an_older_one_of_the_same_cell(copied, database, cli):
    record = next(r for r in WorkFolder(copied).finished("score") if r["title"] == "score plr on blur@2")
    other = record["folder"].parent / ("0" * 20)
    shutil.copytree(record.pop("folder"), other)
    cells = json.loads((other / "cells.json").read_text())
    write_json(other / "cells.json", [{**c, "value": 0.125} for c in cells])
    write_json(other / "stage.json", {**record, "digest": "0" * 64, "finished": record["finished"] + 60})
    assert cli("db", "rebuild", "--workdir", copied).code == 0
    (cell,) = [c for c in store.read_cells(database) if (c["method"], c["attack"]) == ("blur", "plr")]
    assert cell["value"] == 0.125
    with store.opened(database) as con:
        assert con.execute("SELECT count(*) FROM cells WHERE superseded").fetchone() == (1,)


# ---- export and import ---------------------------------------------------------------------------------------------

@pytest.fixture
def exported(road, cli, tmp_path):
    assert cli("db", "export", tmp_path / "export", "--workdir", road).code == 0
    return tmp_path / "export"


def content(folder) -> bytes:
    """All bytes of an export, and all that its tables say."""
    parts = []
    for path in sorted(folder.iterdir()):
        parts += [path.read_bytes()]
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            parts += [str(table.schema.metadata).encode(), str(table.to_pylist()).encode()]
    return b"\n".join(parts)


def test_an_export_names_nobody_and_holds_nothing_of_the_vault(exported, road):
    import hashlib

    said = content(exported)
    assert b"blackout" in said
    for record in WorkFolder(road).finished("clips"):
        for row in Clips(record["folder"]).rows():
            assert row.video.encode() not in said and row.person.encode() not in said
    for path in road.glob("stages/*/*/vault/*"):
        assert hashlib.sha256(path.read_bytes()).hexdigest().encode() not in said, path
    for path in road.glob("stages/release/*/vault/idmap.parquet"):
        for record in pq.read_table(path).to_pylist():
            assert record["id"].encode() not in said


def test_an_export_holds_no_path_of_this_machine(exported, road):
    assert str(SUITE.parent).encode() not in content(exported) and str(road).encode() not in content(exported)
    assert store._without_root({"kind": "clips", "config": {"root": "/data/wards/root"}})["config"] == {"root": "root"}


def test_an_export_comes_back_whole(exported, road, cli, tmp_path):
    other = tmp_path / "other"
    first = cli("db", "import", exported, "--workdir", other)
    assert first.code == 0 and "Imported 15 numbers" in first.out and "holds 15 numbers" in first.out
    assert tables(other / "veilbench.duckdb") == tables(road / "veilbench.duckdb")
    assert cli("db", "check", "--workdir", other).code == 0
    again = cli("db", "import", exported, "--workdir", other)  # twice is once
    assert again.code == 0 and "was imported" in again.out and "before: 15 numbers" in again.out
    assert tables(other / "veilbench.duckdb") == tables(road / "veilbench.duckdb")
    assert cli("table", "summary", "--workdir", other).out == cli("table", "summary", "--workdir", road).out
    assert cli("site", "build", "--workdir", other).code == 0
    reproduced = cli("reproduce", "blur@2/plr/top1", "--workdir", other)
    assert reproduced.code == 2 and "imported, or never measured" in reproduced.err
    said = cli("explain", "blur@2/plr/top1", "--workdir", other).out
    assert "`veilbench run blocks --method blur@2 --attack plr --dataset blocks" in said and "reproduce" not in said


def test_a_folder_of_exports_names_them_and_a_place_that_cannot_be_written_is_told(exported, road, cli, tmp_path):
    shutil.copytree(exported, tmp_path / "all" / "face" / "mine")
    answer = cli("db", "import", tmp_path / "all", "--workdir", tmp_path / "other")
    assert answer.code == 2 and "There are exports inside it: face/mine." in answer.err
    (tmp_path / "file").write_text("", encoding="utf-8")
    for words in (("site", "build", "--out", tmp_path / "file" / "site"), ("db", "export", tmp_path / "file" / "out")):
        answer = cli(*words, "--workdir", road)
        assert answer.code == 2 and "cannot be written" in answer.err and "Traceback" not in answer.err


@pytest.mark.parametrize("spoil", ["change", "remove", "manifest", "schema"])
def test_a_changed_export_is_refused(exported, cli, tmp_path, spoil):
    manifest = json.loads((exported / "manifest.json").read_text())
    if spoil == "change":
        table = pq.read_table(exported / "cells.parquet")
        pq.write_table(table.slice(1), exported / "cells.parquet")
    elif spoil == "remove":
        (exported / "trials.parquet").unlink()
    elif spoil == "manifest":
        (exported / "manifest.json").unlink()
    else:
        write_json(exported / "manifest.json", {**manifest, "schema": manifest["schema"] + 1})
    answer = cli("db", "import", exported, "--workdir", tmp_path / "other")
    assert answer.code == 2 and "export" in answer.err and not (tmp_path / "other" / "veilbench.duckdb").exists()
    with pytest.raises(DataError):
        exchange.import_folder(WorkFolder(tmp_path / "other"), exported)


def test_the_own_export_imported_again_does_not_double_a_cell(exported, copied, cli):
    assert cli("db", "import", exported, "--workdir", copied).code == 0
    cells = store.read_cells(copied / "veilbench.duckdb")
    assert len({c["id"] for c in cells}) == len(cells) == 15


def test_reading_a_missing_database_is_a_work_folder_error(tmp_path):
    with pytest.raises(WorkFolderError, match="Nothing has been run"):
        store.read_cells(tmp_path / "none.duckdb")


def test_an_export_of_the_schema_before_can_still_be_imported(exported, cli, tmp_path):
    """What it lacks is empty; every number is the same and follows from its trials."""
    path = exported / "cells.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["column", "details"]), path)
    manifest = json.loads((exported / "manifest.json").read_text())
    files = {**manifest["files"], path.name: hashlib.sha256(path.read_bytes()).hexdigest()}
    write_json(exported / "manifest.json", {"schema": 2, "files": files})
    old = tmp_path / "old"
    assert cli("db", "import", exported, "--workdir", old).code == 0
    cells = store.read_cells(old / "veilbench.duckdb")
    assert cells and {c["column"] for c in cells} == {c["metric"] for c in cells}
    assert {c["details"] for c in cells} == {None}
    assert store.check(WorkFolder(old), old / "veilbench.duckdb") == []
