"""A made hospital export: five parties' files, as a German clinic's system writes them,
with the kinds that were drawn.

16 columns: two ids, a date, an hour, measures with decimal commas, skewed laboratory
values, words for yes and no, a ward's letter, an outcome, and free text with line
breaks; 5% gaps, and 999 for what was not measured.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIZES = (6000, 4000, 2000, 12, 0)
_GAPS = 0.05
_SENTINELS = 0.02
_FIRST_DAY = date(2026, 1, 1)

HEADER = (
    *(
        "patient_id",
        "stay_id",
        "admission",
        "hour",
        "age",
        "sex",
        "weight_kg",
        "height_cm",
    ),
    *("crp", "creatinine", "systolic", "temperature", "smoker", "ward", "died", "note"),
)


@dataclass(frozen=True)
class Kind:
    """What patients of one kind are like: means and deviations, or logarithms' ones of
    laboratory values.
    """

    age: tuple[float, float]
    hour: tuple[float, float]
    weight: tuple[float, float]
    crp: tuple[float, float]
    creatinine: tuple[float, float]
    systolic: tuple[float, float]
    temperature: tuple[float, float]
    death: float


KINDS = (
    Kind((32, 8), (0, 2), (74, 9), (0.7, 0.6), (-0.2, 0.2), (126, 9), (36.8, 0.3),
         0.01),
    Kind((76, 7), (11, 2), (70, 10), (4.7, 0.5), (0.6, 0.4), (108, 9), (38.7, 0.4),
         0.12),
    Kind((57, 8), (8, 1.5), (92, 10), (1.2, 0.6), (0.1, 0.25), (148, 10), (36.7, 0.3),
         0.02),
)  # fmt: skip


def _comma(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace(".", ",")


def _note(generator: np.random.Generator) -> str:
    notes = (
        "keine", 'sagt: "es geht"', "wach;\norientiert", "Zeile 1\nZeile 2\n1;2;3", "",
    )  # fmt: skip
    return str(generator.choice(notes))


def draw(
    n_rows: int, generator: np.random.Generator
) -> tuple[list[list[str]], NDArray[np.int64]]:
    """Rows as texts, and the kind of each."""
    kinds = generator.integers(0, len(KINDS), n_rows)
    rows = []
    for index, kind in enumerate(kinds):
        of = KINDS[kind]
        day = _FIRST_DAY + timedelta(days=int(generator.integers(0, 365)))
        sick = generator.random() < of.death
        measures = {
            "age": f"{np.clip(generator.normal(*of.age), 18, 105):.0f}",
            "weight_kg": _comma(generator.normal(*of.weight), 1),
            "height_cm": f"{generator.normal(172, 9):.0f}",
            "crp": _comma(float(np.exp(generator.normal(*of.crp))), 1),
            "creatinine": _comma(float(np.exp(generator.normal(*of.creatinine))), 2),
            "systolic": f"{generator.normal(*of.systolic):.0f}",
            "temperature": _comma(generator.normal(*of.temperature), 1),
        }
        for name in measures:
            luck = generator.random()
            if luck < _GAPS:
                measures[name] = ""
            elif luck < _GAPS + _SENTINELS and name in ("crp", "systolic"):
                measures[name] = "999"
        row = {
            "patient_id": f"P{generator.integers(0, 10**6):06d}",
            "stay_id": str(500_000 + index),
            "admission": day.strftime("%d.%m.%Y"),
            "hour": str(int(np.rint(generator.normal(*of.hour))) % 24),
            "sex": str(generator.choice(["m", "w"])),
            "smoker": "ja" if generator.random() < 0.25 else "nein",
            "ward": str(generator.choice(["A", "B", "C", "D"])),
            "died": "ja" if sick else "nein",
            "note": _note(generator),
            **measures,
        }
        rows.append([row[name] for name in HEADER])
    return rows, kinds


def write(folder: Path, seed: int = 0) -> tuple[list[Path], list[NDArray[np.int64]]]:
    """The parties' files, and the kinds of their rows."""
    generator = np.random.default_rng(seed)
    files, kinds = [], []
    for party, n_rows in enumerate(SIZES):
        rows, drawn = draw(n_rows, generator)
        path = folder / f"clinic_{party}.csv"
        with path.open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file, delimiter=";")
            writer.writerow(HEADER)
            writer.writerows(rows)
        files.append(path)
        kinds.append(drawn)
    return files, kinds
