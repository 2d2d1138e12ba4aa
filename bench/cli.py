"""The command line (owner of typer). Commands are thin: they parse, call, print. UserError is caught once, in main."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from bench import describe, registry
from bench.errors import ConfigError, UserError, nearest

app = typer.Typer(name="veilbench", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  help="Benchmark and leaderboard for private video release.")
data_app = typer.Typer(no_args_is_help=True, help="Prepare a dataset, check a prepared one.")
weights_app = typer.Typer(no_args_is_help=True, help="Networks that come with the project: check, train again.")
site_app = typer.Typer(no_args_is_help=True, help="Build or serve the static leaderboard.")
db_app = typer.Typer(no_args_is_help=True, help="The index of results: rebuild, check, export, import.")
for sub, name in ((data_app, "data"), (weights_app, "weights"), (site_app, "site"), (db_app, "db")):
    app.add_typer(sub, name=name)

Workdir = Annotated[Path, typer.Option("--workdir", help="Work folder; everything is kept there.")]
Display = Annotated[Optional[str], typer.Option("--display", help="rich, plain, json or none.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Stages at a time, one core each.")]
Plugin = Annotated[Optional[list[Path]], typer.Option("--plugin", help="Add one plug-in file.")]
Root = Annotated[Optional[Path], typer.Option("--root", help="Folder of the dataset's videos.")]
DEFAULT = Path("runs")
LISTS = ("methods", "attacks", "metrics", "datasets", "suites", "tables", "weights")


def _plugins(paths: list[Path] | None) -> None:
    for path in paths or []:
        describe.use_file(path)


@app.command(name="list")
def list_(kind: Annotated[Optional[str], typer.Argument(help=" | ".join(LISTS))] = None, plugin: Plugin = None) -> None:
    """What there is: methods, attacks, metrics, datasets, suites, tables, weights."""
    from bench.listing import lines

    _plugins(plugin)
    if kind is not None and kind not in LISTS:
        raise ConfigError(f"There is nothing called {kind!r} to list.", nearest(kind, LISTS), "")
    for line in lines([kind] if kind else list(LISTS)):
        typer.echo(line)


@app.command()
def doctor(workdir: Workdir = DEFAULT) -> None:
    """Cores, memory, disk, packages, detector, database, isolation in force; exit code 1 when something is missing."""
    from bench.doctor import examine

    findings = examine(workdir)
    for finding in findings:
        typer.echo(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.what:<12} {finding.text}")
    if not all(f.ok for f in findings):
        raise typer.Exit(1)


@app.command()
def demo(out: Annotated[Path, typer.Option("--out", help="Work folder of the demo.")] = DEFAULT, jobs: Jobs = 2,
         display: Display = None) -> None:
    """The whole road on made data: faces, then reports of a traffic camera; tables and a site."""
    from bench.commands import print_table, run_suite
    from bench.index_commands import build_site_at

    code = max(run_suite(s, out, jobs=jobs, display_kind=display, hint=False) for s in ("demo", "demo-traffic"))
    print_table("summary", out, "md")
    index = build_site_at(out, None)
    typer.echo(f"\nThe board: {index}\nNext: `veilbench run demo --method blur@8`, or a method of your own "
               "(CONTRIBUTING.md).")
    raise typer.Exit(code)


@app.command()
def run(suite: Annotated[str, typer.Argument(help="Name of a suite, or a TOML file.")],
        method: Annotated[Optional[list[str]], typer.Option("--method", help="NAME or NAME@VARIANT.")] = None,
        attack: Annotated[Optional[list[str]], typer.Option("--attack", help="Only this attack.")] = None,
        metric: Annotated[Optional[list[str]], typer.Option("--metric", help="Only this metric.")] = None,
        dataset: Annotated[Optional[str], typer.Option("--dataset")] = None, root: Root = None,
        seeds: Annotated[Optional[str], typer.Option("--seeds", help="Attacker seeds, as 42,43,44.")] = None,
        profile: Annotated[Optional[str], typer.Option("--profile", help="tiny or paper.")] = None,
        executor: Annotated[str, typer.Option("--executor", help="local.")] = "local",
        jobs: Jobs = 2, workdir: Workdir = DEFAULT, display: Display = None, plugin: Plugin = None,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the stages, run nothing.")] = False) -> None:
    """Run a suite; what is already done is not done again. Exit code 1 when a stage failed."""
    from bench.commands import Selection, run_suite

    _plugins(plugin)
    if executor != "local":
        raise ConfigError(f"There is no executor {executor!r}.", "Stages run on this machine.", "Use --executor local.")
    if profile not in (None, "tiny", "paper"):
        raise ConfigError(f"There is no profile {profile!r}.", "", "Use --profile tiny or --profile paper.")
    chosen = Selection(method or [], attack or [], metric or [], dataset, root, _seeds(seeds), profile)
    raise typer.Exit(run_suite(suite, workdir, chosen, jobs=jobs, display_kind=display, dry_run=dry_run))


def _seeds(text: str | None) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")] if text else []
    except ValueError:
        raise ConfigError(f"--seeds {text!r} is no list of whole numbers.", "", "Write --seeds 42,43,44.") from None
    if len(set(found)) != len(found) or any(s < 0 for s in found):
        raise ConfigError(f"--seeds {text!r} repeats a seed or has a negative one.",
                          "A repeated seed is not a second measurement.", "Write --seeds 42,43,44.")
    return found


@app.command()
def status(workdir: Workdir = DEFAULT) -> None:
    """What ran, what failed and why, with the end of its log."""
    from bench.commands import status_lines

    for line in status_lines(workdir):
        typer.echo(line)


@app.command()
def explain(cell: Annotated[str, typer.Argument(help="Cell id, or METHOD/ATTACK/METRIC.")],
            workdir: Workdir = DEFAULT, format: Annotated[str, typer.Option("--format")] = "text") -> None:
    """Where a number comes from: trials, stages, digests, seeds, versions, command."""
    from bench.explain import explain_lines

    for line in explain_lines(workdir, cell, format):
        typer.echo(line)


@app.command()
def reproduce(cell: Annotated[str, typer.Argument(help="Cell id, or METHOD/ATTACK/METRIC.")],
              workdir: Workdir = DEFAULT, jobs: Jobs = 2, display: Display = None, plugin: Plugin = None) -> None:
    """Make a number again in a fresh folder and compare; prepared data and assets are reused. Exit code 1: differs."""
    from bench.explain import reproduce_cell

    _plugins(plugin)
    same, text = reproduce_cell(workdir, cell, jobs, display)
    typer.echo(text)
    raise typer.Exit(0 if same else 1)


@app.command()
def account(claim: Annotated[str, typer.Argument(metavar="METHOD|FILE", help="NAME, NAME@VARIANT or a claim in TOML.")],
            delta: Annotated[Optional[float], typer.Option("--delta", help="In place of the claim's.")] = None,
            clips: Annotated[Optional[int], typer.Option("--clips", help="Clips of one video, composed.")] = None,
            format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
            plugin: Plugin = None) -> None:
    """What a claim is worth: every epsilon, the ceilings it sets, what follows from it and what does not."""
    from bench.account import printed

    _plugins(plugin)
    for line in printed(claim, delta, clips, format):
        typer.echo(line)


@app.command()
def audit(method: Annotated[str, typer.Argument(help="NAME or NAME@VARIANT.")],
          releases: Annotated[Optional[int], typer.Option("--releases", help="Over all pairs of inputs.")] = None,
          dataset: Annotated[str, typer.Option("--dataset")] = "synthfaces_demo", root: Root = None,
          workdir: Workdir = DEFAULT, format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
          plugin: Plugin = None) -> None:
    """Test an enforced claim on releases of known inputs; exit code 1 when it is refuted."""
    from bench.auditing import audit

    _plugins(plugin)
    code, lines = audit(method, workdir, releases=releases, dataset=dataset, root=root, form=format)
    for line in lines:
        typer.echo(line)
    raise typer.Exit(code)


@app.command()
def release(method: Annotated[str, typer.Argument(help="NAME or NAME@VARIANT.")],
            source: Annotated[Path, typer.Argument(metavar="INPUT", help="A video file.")],
            output: Annotated[Path, typer.Option("-o", "--output", help="Where to write it.")],
            lossless: Annotated[bool, typer.Option("--lossless", help="FFV1 (.mkv) instead of H.264.")] = False,
            camera: Annotated[Optional[Path], typer.Option("--camera", help="A traffic camera's public facts.")] = None,
            workdir: Workdir = DEFAULT, plugin: Plugin = None) -> None:
    """Release a video of your own and its privacy card: faces replaced in place, the noisy crop, or reports."""
    from bench.releasing import release_video

    _plugins(plugin)
    for line in release_video(method, source, output, lossless, workdir, camera):
        typer.echo(line)


@app.command()
def table(name: Annotated[str, typer.Argument(help="`veilbench list tables`")], workdir: Workdir = DEFAULT,
          format: Annotated[str, typer.Option("--format", help="md, csv, latex or json.")] = "md",
          dataset: Annotated[Optional[str], typer.Option("--dataset", help="Only this dataset.")] = None,
          reported: Annotated[Optional[Path], typer.Option("--reported", help="A paper's own numbers, CSV.")] = None,
          against: Annotated[Optional[Path], typer.Option("--against", help="Another database.")] = None,
          out: Annotated[Optional[Path], typer.Option("--out", help="Folder of a figure's files.")] = None) -> None:
    """Print a table of results, or write the files of a figure."""
    from bench.commands import print_table

    print_table(name, workdir, format, dataset, reported=reported, against=against, out=out)


@data_app.command("prepare")
def data_prepare(name: str, root: Root = None, workdir: Workdir = DEFAULT, display: Display = None) -> None:
    """Decode, crop and code a dataset into the work folder."""
    from bench.commands import prepare

    raise typer.Exit(prepare(name, root, workdir, display))


@data_app.command("check")
def data_check(name: str, root: Root = None, workdir: Workdir = DEFAULT) -> None:
    """Compare a prepared dataset with its manifest, or list all problems of a folder (--root); exit code 1: any."""
    from bench.commands import check_data

    problems = check_data(name, workdir, root)
    typer.echo("\n".join(problems) or f"{root or name}: every file is as its {'layout' if root else 'manifest'} says.")
    raise typer.Exit(1 if problems else 0)


@weights_app.command("check")
def weights_check() -> None:
    """Compare shipped networks with their SHA-256; exit code 1 when one differs."""
    from bench import weights

    problems = weights.check()
    typer.echo("\n".join(problems) or f"{', '.join(weights.shipped()) or 'No network'}: as their digests say.")
    raise typer.Exit(1 if problems else 0)


@weights_app.command("train")
def weights_train(name: str, out: Annotated[Path, typer.Option("--out", help="A .safetensors file.")],
                  workdir: Workdir = DEFAULT, display: Display = None) -> None:
    """Train a shared network on the public made people, as the shipped ones were (minutes)."""
    from bench.commands import train_weights

    raise typer.Exit(train_weights(name, out, workdir, display))


@site_app.command("build")
def site_build(workdir: Workdir = DEFAULT,
               out: Annotated[Optional[Path], typer.Option("--out", help="Default: WORKDIR/site.")] = None) -> None:
    """Render the leaderboard into static files."""
    from bench.index_commands import build_site_at

    typer.echo(f"Built {build_site_at(workdir, out)}\nNext: `veilbench site serve`, or publish the folder as it is.")


@site_app.command("serve")
def site_serve(workdir: Workdir = DEFAULT, port: Annotated[int, typer.Option("--port")] = 8000) -> None:
    """Serve the built site on this machine only (127.0.0.1)."""
    from bench.index_commands import serve

    serve(workdir / "site", port)


@db_app.command("rebuild")
def db_rebuild(workdir: Workdir = DEFAULT) -> None:
    """Make the index anew from the work folder."""
    from bench.index_commands import rebuild

    typer.echo("\n".join(f"{name:<12} {rows} rows" for name, rows in rebuild(workdir).items()))


@db_app.command("check")
def db_check(workdir: Workdir = DEFAULT) -> None:
    """Recompute every number from its trials and compare with the work folder; exit code 1 when anything differs."""
    from bench.index_commands import check_db

    problems = check_db(workdir)
    typer.echo("\n".join(problems) or "Every number is what its trials give, every table what the folders hold.")
    raise typer.Exit(1 if problems else 0)


@db_app.command("export")
def db_export(out: Path, workdir: Workdir = DEFAULT) -> None:
    """Write all tables as parquet with a hashed manifest. Nothing of the vault is in them."""
    from bench.index_commands import export_db

    typer.echo("\n".join(map(str, export_db(workdir, out))))


@db_app.command("import")
def db_import(source: Path, workdir: Workdir = DEFAULT) -> None:
    """Add an export of another machine to this work folder."""
    from bench.index_commands import import_db

    typer.echo(f"{import_db(workdir, source)}\nNext: `veilbench table summary`, `veilbench site build`.")


def main() -> None:
    """Entry point: one paragraph and exit code 2 for a fault that a user can mend."""
    try:
        registry.check_shadowing()
        app(prog_name="veilbench")
    except UserError as error:
        sys.stderr.write(f"veilbench: {error}\n")
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    main()
