"""The tables of the TADP paper over measured cells: each is a list of columns and a choice of rows.

A column names fields of a cell; what it leaves open may be anything, and every different cell is then a column of its
own. A measurement that a row lacks is a dash, with the command that would produce it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.blocks import Block, by_board, footer, matrix, row_label, row_of
from bench.budget_tables import composed_budgets
from bench.display import Cell, column_name, finite, method_name, missing

Fields = Mapping[str, Any]
RECOVERIES = ("recover_unet", "recover_rvrt")


def of(metric: str, attack: str | None = None, *, via: str = "direct", **more: Any) -> Fields:
    """A column: cells of this metric (and attack) read directly, or through a recovery attack."""
    return {"metric": metric, "attack": attack, "via": via, **more}


LEAKAGE = (of("top1", "plr"), of("top1", "cplr"))
FER = (of("fer"),)
TIME = (of("fwe_src"), of("fwe_self"), of("fvd"), of("tlpips_adj"), of("tlp_ref"), of("t_id"), of("tg"))
WHOLE = ("mini", "mini-faces", "tadp", "full")  # suites that carry every column of the tables on utility and leakage
OPEN_SET = ("tar", "eer", "dir")


@dataclass(frozen=True)
class PaperTable:
    """caption: what the table shows.  columns: see `of`.  rows: which (method, variant) stand in it, in this order;
    None = every method that has a number in one of the columns.  suite: what would measure a gap.  costs, fitted: what
    the releases took and what the fitted states say stand beside.  dataset: only cells on it; while there are none, the
    frame stands with dashes and `waits`, the sentence that says what it waits for.
    """

    caption: str
    columns: tuple[Fields, ...]
    rows: tuple[tuple[str, str | None], ...] | None = None
    suite: str = "tadp"
    costs: bool = False
    fitted: bool = False
    dataset: str | None = None
    waits: str = ""

    def __call__(self, cells: Sequence[Cell]) -> list[Block]:
        """One block a board; a board without any of the rows is left out, and if none is left, one says so."""
        cells = [cell for cell in cells if self.dataset in (None, cell["dataset"])]
        made = [self._block(f"{self.caption}: {dataset}, {profile} profile", group)
                for (_, dataset, profile), group in by_board(cells).items()]
        filled = [block for block in made if block.rows]
        if not filled and self.dataset:
            return [self._frame()]
        return filled or [Block(self.caption, (), (), (f"nothing measured yet: veilbench run {self.suite}",))]

    def _block(self, caption: str, cells: Sequence[Cell]) -> Block:
        inside = [(i, cell) for cell in cells for i, fields in enumerate(self.columns) if _fits(cell, fields)]
        columns: dict[tuple[int, str], Cell] = {}
        rows: dict[tuple, dict[tuple[int, str], Cell]] = {}
        for i, cell in sorted(inside, key=lambda pair: pair[0]):
            columns.setdefault((i, column_name(cell)), cell)
        for i, fields in enumerate(self.columns):
            if not any(number == i for number, _ in columns):
                columns[i, column_name(_unmeasured(fields))] = _unmeasured(fields)
        for i, cell in inside:
            rows.setdefault(row_of(cell), {})[i, column_name(cell)] = cell
        keys = sorted(columns, key=lambda key: key[0])
        filled = []
        for row in self._chosen(list(rows)):
            sample = next(iter(rows[row].values()))
            line = tuple(rows[row].get(key) or self._gap(sample, columns[key]) for key in keys)
            filled.append((row_label(sample), line))
        return Block(caption, tuple(columns[key] for key in keys), tuple(filled),
                     footer([cell for cells in rows.values() for cell in cells.values()]))

    def _frame(self) -> Block:
        """The rows and columns without a number: dashes, and the sentence that says why."""
        columns = tuple(_unmeasured(fields) for fields in self.columns)
        nothing: dict[str, Any] = {**dict.fromkeys(("value", "lo", "hi")), "dataset": self.dataset, "seeds": [],
                                   "status": f"undefined: it waits for the dataset {self.dataset}", "text": self.waits}
        rows = tuple((method_name(row), tuple({**column, **nothing, **row} for column in columns))
                     for row in ({"method": m, "variant": v} for m, v in self.rows or ()))
        return Block(f"{self.caption}: {self.dataset}", columns, rows, (self.waits,))

    def _chosen(self, rows: list[tuple]) -> list[tuple]:
        if self.rows is None:
            return rows
        return [row for wanted in self.rows for row in rows if row[:2] == wanted]

    def _gap(self, row: Cell, column: Cell) -> Cell:
        """A cell without a number; the suite that measured the row also measures the gap, where it carries all."""
        return {**missing(row, column), "suite": row["suite"] if row.get("suite") in WHOLE else self.suite}


def _fits(cell: Cell, fields: Fields) -> bool:
    params = cell.get("params") or {}
    for name, wanted in fields.items():
        have = (cell.get("via") or "direct") if name == "via" else cell.get(name)
        if name == "params":
            if not wanted.items() <= params.items():
                return False
        elif have != wanted:
            return False
    return True


def _unmeasured(fields: Fields) -> dict[str, Any]:
    nothing = dict.fromkeys(("evaluator", "decoding", "metric_unit", "params", "chance", "role"))
    return {**nothing, "better": "none", "title": "", **fields}


def _variants(*names: str | None) -> tuple[tuple[str, str | None], ...]:
    return tuple(("tadp", name) for name in names)


def ceilings(cells: Sequence[Cell]) -> list[Block]:
    """Every measurement that a claim limits: the number beside the most (of an error rate the least) that it allows."""
    limited = [cell for cell in cells if finite(cell.get("ceiling"))]
    made = [replace(matrix(f"What the claims allow: {dataset}, {profile} profile", group), limits=True)
            for (_, dataset, profile), group in by_board(limited).items()]
    return made or [Block("What the claims allow", (), (), ("no measured row has a claim: veilbench run mini",))]


_EVERY = _variants(None, "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8")
_BUDGETS = _variants("eps2", "eps4", None, "eps16", "eps8-rho10", "eps8-rho50", "no_noise")
_BRANCH = ("scale_mean", "scale_std", "scale_min", "scale_max")

PAPER_TABLES: dict[str, Callable[[Sequence[Cell]], list[Block]]] = {
    "tadp-3": PaperTable("Utility and identity leakage", (*FER, *LEAKAGE), suite="mini"),
    "tadp-4": PaperTable("Steadiness in time", TIME, suite="mini"),
    "tadp-5": PaperTable("After somebody tried to undo it", tuple(
        of(metric, attack, via=via) for via in RECOVERIES
        for metric, attack in (("psnr_recovered", None), ("ssim_recovered", None), ("top1", "plr"), ("top1", "cplr"))),
        suite="mini"),
    "tadp-6": PaperTable("Open-set identity, direct and recovered", (
        *(of(metric, "open_set") for metric in OPEN_SET),
        *(of(metric, "open_set", via="recover_rvrt") for metric in OPEN_SET)), suite="mini"),
    "tadp-7": PaperTable("Distances of identity features: original to released, to recovered, released to recovered", (
        of("fd_id"), of("mmd_id"), *(of(metric, via=via) for via in RECOVERIES
                                     for metric in ("fd_id", "mmd_id", "fd_id_pr", "mmd_id_pr"))), suite="mini"),
    "tadp-8": PaperTable("What one linear layer reads at each stage, and what evaluators read from the video", (
        of("probe", "stages"), *FER), _variants(None)),
    "tadp-9": PaperTable("Inputs changed before the noise", (
        of("fer", evaluator="x3d"), *LEAKAGE, *(of(metric, "interventions") for metric in ("fer", "plr", "cplr"))),
        _variants(None)),
    "tadp-10": PaperTable("The same videos released again and again", tuple(
        of(metric, "stability") for metric in ("fer_mean", "fer_std", "modal_agreement", "modal_std",
                                               "pairwise_agreement")), _variants(None)),
    "tadp-11": PaperTable("Realised noise scales", tuple(of(metric, "scales") for metric in (*_BRANCH, "scale_ratio")),
                          _variants(None, "a6")),
    "tadp-12": PaperTable("Norms of clipped values and of the noise", tuple(
        of(metric, "scales") for metric in ("signal_norm", "signal_norm_std", "noise_norm", "noise_norm_std",
                                            "ratio_median", "ratio_p5", "ratio_p95")), _variants(None)),
    "tadp-13": PaperTable("Soft assignments to the codebooks", tuple(
        of(metric, "quantization") for metric in ("entry_norm", "entry_norm_std", "entropy", "max_probability",
                                                  "top1_agreement")), _variants(None)),
    "tadp-1": PaperTable("Clipping, shares of the loss, floors and realised scales", tuple(
        of(metric, "scales") for metric in ("clipped_share", "loss_share", "floor", "scale_min", "scale_max")),
        _variants(None, "eps2", "eps4", "eps16"), fitted=True),
    "tadp-2": composed_budgets,
    "tadp-14": PaperTable(
        "Fitted on one dataset, released on DFEW: utility, clipping, steadiness",
        (of("fer"), of("uar"), of("clipped_share", "scales", params={"branch": "expr"}), of("tlpips_adj")),
        (("original", None), *_variants("no_noise", None)), dataset="dfew", waits=(
            "It waits for the dataset dfew, faces in the wild with 7 expressions, which its authors hand out on "
            "request and which nothing here reads yet: fit on one dataset, release on dfew; rows original, without "
            "noise, full.")),
    "tadp-15": PaperTable("Ablation", (*FER, *LEAKAGE, of("tlpips_adj")), _EVERY),
    "tadp-16": PaperTable("Length of a clip at one budget", (*FER, *LEAKAGE, of("tlpips_adj")),
                          _variants("t8", None, "t32"), costs=True),
    "tadp-17": PaperTable("Budgets: utility, leakage, steadiness", (*FER, *LEAKAGE, of("tlpips_adj")), _BUDGETS),
    "tadp-18": PaperTable("Budgets: utility, leakage, steadiness", (*FER, *LEAKAGE, of("tlpips_adj")), _BUDGETS),
    "ceilings": ceilings,
}

# Pictures: written as files by the command that prints the tables (bench/figures.py draws them)
PAPER_FIGURES = {
    "tadp-fig3": "Frames of one probe video in order: original, without noise, released (PNG)",
    "tadp-fig4": "Identity features before and after recovery by a U-Net, t-SNE (SVG)",
    "tadp-fig5": "Identity features before and after recovery by RVRT, t-SNE (SVG)",
}
