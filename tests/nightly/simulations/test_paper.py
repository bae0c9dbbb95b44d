"""ProxyLloyd as a paper: made of the pages, so that nothing in it is older than they
are.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from simulations import paper as module
from simulations.paper import METHOD, PROOFS, ROWS, main, paper


def test_it_has_all_of_the_method_its_bounds_and_its_pictures() -> None:
    text = paper()
    titles = re.findall(r"^## (.+)$", METHOD.read_text(), re.MULTILINE)
    assert len(titles) > 8
    assert [title for title in titles[1:] if f"<h3>{title}</h3>" not in text] == []
    pictures = [
        Path(unquote(urlsplit(one).path)) for one in re.findall(r'src="([^"]+)"', text)
    ]
    assert len(pictures) == 4
    assert all(picture.is_file() for picture in pictures)
    # Every row with what it says, and without the names of tests.
    for name in ROWS:
        assert f"<td>{name}</td>" in text
    assert "test_one_row" not in text
    # No link leads nowhere on paper.
    assert all(urlsplit(one).scheme for one in re.findall(r'href="([^"]*)"', text))


def test_a_row_that_is_gone_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shorter = tmp_path / "README.md"
    shorter.write_text(
        re.sub(r"^\| S13 .*$", "", PROOFS.read_text(), flags=re.MULTILINE)
    )
    monkeypatch.setattr(module, "PROOFS", shorter)
    with pytest.raises(module.ConfigurationError, match="S13"):
        paper()


def test_the_command_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([str(tmp_path / "paper.html")]) == 0
    assert (tmp_path / "paper.html").read_text() == paper()
    assert main([str(tmp_path / "paper.doc")]) == 1
    assert "let it end with" in capsys.readouterr().err
    monkeypatch.setenv("CHROMIUM", "")
    assert main([str(tmp_path / "paper.pdf")]) == 1
    assert "no Chromium" in capsys.readouterr().err
    assert not (tmp_path / "paper.pdf").exists()


@pytest.mark.skipif(
    shutil.which("chromium") is None, reason="there is no Chromium here"
)
def test_chromium_prints_it(tmp_path: Path) -> None:
    assert main([str(tmp_path / "paper.pdf")]) == 0
    printed = (tmp_path / "paper.pdf").read_bytes()
    assert printed.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) > 8
