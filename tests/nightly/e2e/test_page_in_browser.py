"""A run's page as a browser shows it: nothing is cut off or overlaps, in the light, in
the dark and on paper.

It needs Chromium (Debian's package): the program that ``CHROMIUM`` names, else
``chromium``; an empty name is none.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.node_files import write_node

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.deploy.dashboard import node_page, server_page
from flwr_dpkmeans.errors import CohortError, DPKMeansError
from flwr_dpkmeans.flower.progress import recorded_progress
from flwr_dpkmeans.flower.round_trip import Notice
from flwr_dpkmeans.node.ledger_entries import LedgerEntry
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.results.page import page
from flwr_dpkmeans.results.picture import draw_summary
from flwr_dpkmeans.results.rendering import HTML
from flwr_dpkmeans.results.run_result import RunResult

BROWSER = shutil.which(os.environ.get("CHROMIUM", "chromium") or "none")
pytestmark = [
    pytest.mark.skipif(
        BROWSER is None,
        reason="there is no Chromium here: install Debian's package 'chromium'",
    ),
]
MEASURE = """<script>addEventListener("load", () => {
  const all_of = selector => [...document.querySelectorAll(selector)];
  const wide = e => e.scrollWidth > e.clientWidth + 1;
  const blocks = all_of("h1, h2, p, img, [role=region]");
  const boxes = blocks.map(e => e.getBoundingClientRect());
  const overlaps = boxes.filter((b, i) => i && b.top < boxes[i - 1].bottom - 1).length;
  const cells = all_of("th, td, p, h1, h2").filter(wide);
  const scrolling = all_of("[role=region]").filter(wide);
  const all = [...document.querySelectorAll("[role=region]")];
  document.documentElement.dataset.found = JSON.stringify({
    beyond: document.documentElement.scrollWidth - innerWidth,
    overlaps, overflowing: cells.length,
    scrolling: scrolling.length,
    scrolls: all.every(e => getComputedStyle(e).overflowX === "auto"),
    pictures: [...document.images].map(e => e.naturalWidth),
    paper: getComputedStyle(document.body).backgroundColor,
  });
});</script>"""


def browse(folder: Path, *arguments: str) -> str:
    """What headless Chromium writes; its own profile lies in the folder."""
    assert BROWSER is not None
    options = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder}/profile",
    )
    ran = subprocess.run(
        [BROWSER, *options, *arguments], capture_output=True, timeout=120, check=True
    )
    return ran.stdout.decode()


def measured(folder: Path, width: int, *, dark: bool = False) -> dict[str, Any]:
    """Sizes that a script finds in a copy of the page, which may run one."""
    content = (folder / "report.html").read_text()
    copy = folder / "measured.html"
    copy.write_text(re.sub("<meta http-equiv[^>]*>", MEASURE, content))
    # preferredColorScheme: 0 is dark, 1 light.
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    shown = browse(
        folder, scheme, f"--window-size={width},1400", "--dump-dom", copy.as_uri()
    )
    (found,) = re.findall('data-found="([^"]*)"', shown)
    return json.loads(unescape(found))  # type: ignore[no-any-return]


def written(folder: Path, n_clusters: int, table: pd.DataFrame, bounds: Any) -> Path:
    """A client's page for a run over a table."""
    km = FederatedKMeans(
        n_clusters,
        engine="direct",
        bounds=bounds,
        epsilon=8.0,
        random_state=0,
        max_iter=2,
    )
    model = km.fit([table[::2], table[1::2]]).model_
    result = RunResult(
        model, km.privacy_, radius=0.5, profile=model.profile(table[::2])
    )
    (folder / "report.html").write_bytes(
        page(HTML, km.privacy_, result, draw_summary(result))
    )
    return folder


@pytest.fixture(scope="module", params=["large", "one-hot"])
def folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Twenty clusters in sixty columns with long names.

    Or dates, shares and a name that would be a script.
    """
    generator, place = np.random.default_rng(0), tmp_path_factory.mktemp("page")
    if request.param == "large":
        rows = generator.uniform(-1, 1, (2000, 60))
        names = [
            f"measurement_{i}_{'with_a_long_name' * (1 + i % 4)}" for i in range(60)
        ]
        return written(place, 20, pd.DataFrame(rows, columns=names), (-1, 1))
    wards = np.array(["<script>document.title = 'broken'</script>", "B"])[
        generator.integers(0, 2, 500)
    ]
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(
        generator.integers(0, 300, 500), unit="D"
    )
    table = pd.DataFrame(
        {
            "ward": wards,
            "seen": days.strftime("%Y-%m-%d"),
            "age": generator.uniform(0, 90, 500),
        }
    )
    ward = {"kind": "category", "values": sorted(set(wards))}
    seen, age = (
        {"kind": "date", "bounds": ("2020-01-01", "2020-12-31")},
        {"kind": "number", "bounds": (0, 100)},
    )
    return written(
        place, 3, table, Schema(columns={"ward": ward, "seen": seen, "age": age})
    )


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (400, False)])
def test_nothing_is_cut_off_or_overlaps_and_wide_tables_scroll(
    folder: Path, width: int, dark: bool
) -> None:
    found = measured(folder, width, dark=dark)
    assert found["beyond"] <= 0
    assert (found["overlaps"], found["overflowing"]) == (0, 0)
    assert found["scrolls"]
    assert found["scrolling"] > 0 or width > 400
    assert found["pictures"] == [640]
    assert (found["paper"] == "rgb(255, 255, 255)") is not dark


def test_the_page_is_seen_with_its_policy_and_printed(folder: Path) -> None:
    from PIL import Image

    address, picture, paper = (
        (folder / "report.html").as_uri(),
        folder / "seen.png",
        folder / "page.pdf",
    )
    browse(folder, "--window-size=1200,1400", f"--screenshot={picture}", address)
    with Image.open(io.BytesIO(picture.read_bytes())) as image:
        colours = image.convert("RGB").resize((300, 350)).getcolors(10**6)
    assert colours is not None
    assert len(colours) > 500
    assert "broken" not in browse(folder, "--dump-dom", address).split("</title>")[0]
    browse(folder, "--no-pdf-header-footer", f"--print-to-pdf={paper}", address)
    content = paper.read_bytes()
    assert content.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", content)) >= 3


# -- live pages ------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["server", "node"])
def watched(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """What a dashboard shows, the harder the longer.

    Forty nodes of twenty digits, sentences and paths without end.
    """
    place = tmp_path_factory.mktemp("live")
    if request.param == "node":
        shown = write_node(
            place / "ward", log_file=str(place / "node.log"), data_id="ward_" * 20
        )
        (place / "node.log").write_text(
            "".join(
                f"2026-01-01T00:00:00 INFO run 7: asked for: {x}\n"
                for x in ("x" * 300, "why " * 99)
            )
        )
        entry = LedgerEntry(
            f"{2**63}/{2**63}",
            "ward_" * 20,
            "ab" * 32,
            1,
            0,
            "sums",
            epsilon=1.5,
            delta=1e-6,
            unit="record",
        )
        FileLedger(place / "ward" / "ledger.jsonl").charge(entry)
        page = node_page(shown)
    else:
        shown, nodes = place / "runs", tuple(str(2**63 + index) for index in range(40))
        notice = Notice(
            time="2026-01-01T00:00:00",
            event="refused",
            reason="",
            sentence=f"{'0' * 200} refused: " + "why " * 99,
        )
        with (
            contextlib.suppress(DPKMeansError),
            recorded_progress(2**62, shown / "run-1") as progress,
        ):
            progress.tell(
                nodes=nodes,
                late=nodes,
                missing=nodes[:3],
                notices=(notice,) * 3,
                n_left=4,
                plan="ab" * 32,
            )
            raise CohortError("too few nodes " * 30)
        page = server_page(shown)
    (place / "report.html").write_text(page)
    return place, shown


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (400, False)])
def test_nothing_of_a_live_page_is_cut_off_or_overlaps(
    watched: tuple[Path, Path], width: int, dark: bool
) -> None:
    found = measured(watched[0], width, dark=dark)
    assert found["beyond"] <= 0
    assert (found["overlaps"], found["overflowing"]) == (0, 0)
    assert found["scrolls"]
    assert (found["paper"] == "rgb(255, 255, 255)") is not dark


def test_a_browser_shows_a_live_page_under_its_policy(
    watched: tuple[Path, Path],
) -> None:
    from PIL import Image

    place, shown = watched
    command = [
        sys.executable,
        "-m",
        "flwr_dpkmeans",
        (shown.suffix and "node") or "server",
        "dashboard",
        str(shown),
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        address = served.stdout.readline().split(" ")[0]
        try:
            browse(
                place,
                "--window-size=1200,1400",
                f"--screenshot={place}/live.png",
                address,
            )
        finally:
            served.terminate()
    with Image.open(place / "live.png") as image:
        colours = {colour for _, colour in image.convert("RGB").getcolors(10**6) or ()}
    # The head of a table has the colour that the page's own style gives it, which the
    # policy names by its hash.
    assert address.startswith("http://127.0.0.1:")
    assert (0xEE, 0xF1, 0xF5) in colours
