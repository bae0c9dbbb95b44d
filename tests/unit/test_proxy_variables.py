"""Hospitals have proxies: a node says which one it asks through, or asks none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flwr_dpkmeans.cli.app import main
from flwr_dpkmeans.deploy.node_options import NodeOptions
from flwr_dpkmeans.deploy.proxies import (
    Proxy,
    choose_proxy,
    leave_loopback_out,
    proxy_before,
)
from flwr_dpkmeans.deploy.superlink_answer import UnansweredError, ask
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.node.policy import read_toml
from simulations.flower.flower_processes import free_ports

VARIABLES = tuple(
    name
    for scheme in ("http", "https", "all", "no")
    for name in (f"{scheme}_proxy", f"{scheme}_PROXY".upper())
)


@pytest.fixture(autouse=True)
def _without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        # set first, so that what a test puts there goes with it
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def options(folder: Path, superlink: str, **others: str) -> NodeOptions:
    lines = [f'{key} = "{value}"' for key, value in others.items()]
    file = folder / "NODE.toml"
    file.write_text(
        "\n".join(
            [
                f'superlink = "{superlink}"',
                f'allowed-apps = ["{"ab" * 32}"]',
                *(f'{key} = "{key}"' for key in ("home", "data-path", "policy")),
                *(f'{key} = "{key}"' for key in ("ledger", "identity", "output")),
                *lines,
            ]
        )
    )
    return NodeOptions.from_toml(file)


def test_the_sentence_names_the_proxy_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its variable and both mends, and without its password."""
    (port,) = free_ports(1)
    monkeypatch.setenv("https_proxy", f"http://nurse:secret@127.0.0.1:{port}")
    node = options(tmp_path, "superlink.example.org:443")
    with pytest.raises(UnansweredError) as caught:
        ask(node)
    sentence = str(caught.value)
    assert f"through the proxy 127.0.0.1:{port} of https_proxy" in sentence
    assert "proxy = 'none' in NODE.toml" in sentence
    assert "no_proxy" in sentence
    assert "secret" not in sentence


def test_without_one_the_sentence_is_the_superlinks_own(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)
    with pytest.raises(UnansweredError) as caught:
        ask(options(tmp_path, f"127.0.0.1:{port}"))
    assert "proxy" not in str(caught.value)


def test_this_machine_is_never_asked_through_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the variable is written in capitals, as some shells' profiles do."""
    proxy, superlink = free_ports(2)
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy}")
    monkeypatch.setenv("NO_PROXY", "intranet.example.org")
    leave_loopback_out(os.environ)
    for host in ("localhost", "127.0.0.1"):
        with pytest.raises(UnansweredError) as caught:
            ask(options(tmp_path, f"{host}:{superlink}"))
        assert "proxy" not in str(caught.value)
    assert proxy_before("intranet.example.org:443") is None
    assert proxy_before("superlink.example.org:443") == Proxy(
        "HTTPS_PROXY", f"127.0.0.1:{proxy}"
    )


def test_every_command_excepts_this_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    assert main(["options"]) == 0
    assert proxy_before("localhost:9093") is None
    assert proxy_before("superlink.example.org:443") is not None


def test_exceptions_are_added_once_and_a_star_stays() -> None:
    environment = {"no_proxy": "a.org, localhost"}
    leave_loopback_out(environment)
    leave_loopback_out(environment)
    excepted = "a.org,localhost,127.0.0.1,::1"
    assert environment == {"no_proxy": excepted, "NO_PROXY": excepted}
    environment["NO_PROXY"] = "*"
    leave_loopback_out(environment)
    assert environment == {"no_proxy": "*", "NO_PROXY": "*"}


def test_a_nodes_own_proxy_replaces_the_environments() -> None:
    environment = {"HTTPS_PROXY": "http://old:1", "all_proxy": "socks5://old:2"}
    choose_proxy("", environment)
    assert environment["HTTPS_PROXY"] == "http://old:1"
    choose_proxy("http://new:3", environment)
    assert environment == {"https_proxy": "http://new:3", "http_proxy": "http://new:3"}
    choose_proxy("none", environment)
    assert environment == {}


@pytest.mark.parametrize("proxy", ["socks5://a:1", "a:1", "http://u:p@a:1"])
def test_a_key_that_is_no_proxy_is_refused(tmp_path: Path, proxy: str) -> None:
    """A password would lie in a file that others may read."""
    with pytest.raises(ConfigurationError, match="proxy"):
        options(tmp_path, "superlink.example.org:443", proxy=proxy)


def test_a_text_of_windows_is_toml(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_bytes(b"\xef\xbb\xbfmax-epsilon = 1.0\r\n")
    assert read_toml(file, "the policy") == {"max-epsilon": 1.0}
