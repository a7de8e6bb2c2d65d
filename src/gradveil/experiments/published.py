"""The numbers that were published, to stand beside ours (`published.csv`)."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from gradveil.defenses import parse_defense

SOURCES = {
    "gao2021": "Gao et al., Privacy-preserving Collaborative Learning with Automatic Transformation Search, CVPR 2021",
    "drabent2022": "Drabent et al., [Re] Replication study of Privacy-preserving Collaborative Learning, ReScience C, 2022",
    "scheliga2022": "Scheliga et al., PRECODE: A Generic Model Extension to Prevent Deep Gradient Leakage, WACV 2022",
    "geiping2020": "Geiping et al., Inverting Gradients: How easy is it to break privacy in federated learning?, NeurIPS 2020",
    "balunovic2022": "Balunović et al., Bayesian Framework for Gradient Leakage, ICLR 2022",
}
SHORT = {
    "gao2021": "Gao 2021",
    "drabent2022": "Drabent 2022",
    "scheliga2022": "Scheliga 2022",
    "geiping2020": "Geiping 2020",
    "balunovic2022": "Balunović 2022",
}
# Those whose numbers stand beside ours.
WITH_TABLES = ("gao2021", "drabent2022")
# As the papers write them, and as they are called here.
_NAMES = {"pruning": "prune", "laplacian": "laplacian", "gaussian": "gaussian"}


@dataclass(frozen=True)
class PublishedRow:
    """One line of a published table; PSNR to the shared image in dB, accuracy in percent, None where the paper has none."""

    source: str
    table: str
    dataset: str
    model: str
    attack: str
    row: str
    psnr: float | None
    psnr_sd: float | None
    accuracy: float | None


@cache
def published_rows() -> tuple[PublishedRow, ...]:
    """Every line, defenses named as here."""
    text = files("gradveil.experiments").joinpath("published.csv").read_text(encoding="utf-8")
    return tuple(
        PublishedRow(
            one["source"],
            one["experiment"],
            one["dataset"],
            one["model"],
            one["attack"],
            _row_name(one["defense"], one["policy"]),
            _number(one["psnr_db"]),
            _number(one["psnr_std"]),
            _number(one["accuracy_pct"]),
        )
        for one in csv.DictReader(text.splitlines())
    )


def published_beside(tables: str, row: str, attack: str) -> dict[str, PublishedRow]:
    """What each source has for a row: in the first of the `tables`, joined by +, that has it."""
    found: dict[str, PublishedRow] = {}
    for table in tables.split("+"):
        for one in published_rows():
            if (one.table, one.row, one.attack) == (table, row, attack):
                found.setdefault(one.source, one)
    return found


def _row_name(defense: str, policy: str) -> str:
    if defense in ("policy", "hybrid"):
        return policy
    name, _, setting = defense.rstrip(")").partition("(")
    return defense if not setting else str(parse_defense(f"{_NAMES[name]}:{float(setting):g}"))


def _number(text: str) -> float | None:
    return float(text) if text else None
