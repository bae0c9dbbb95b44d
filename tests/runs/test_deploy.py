"""Certificates, keys, folders and the comparison of results, without any of Flower's
programs.
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.loading.declared_tables import load_declared
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.tables import load_table
from flwr_dpkmeans.deploy.certificates import write_node_key
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    DisagreementError,
    RefusalError,
)
from flwr_dpkmeans.flower.run_config import strategy_from_run_config
from flwr_dpkmeans.node.guard import cost_of
from flwr_dpkmeans.node.ledger import Past
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy
from flwr_dpkmeans.node.proposal import Proposal
from flwr_dpkmeans.sums.draft import draft_plan
from simulations.flower.__main__ import expected_duration, main, run_settings
from simulations.flower.collected import collect
from simulations.flower.credentials import make_credentials
from simulations.flower.deployment import PROJECT
from simulations.flower.flower_processes import DeploymentError
from simulations.flower.sites import Site, default_policy, known_facts, make_sites


def handshake(authority: Path, certificate: Path, key: Path, name: str) -> None:
    """Both ends of TLS in memory; raises where the client does not trust the server."""
    server, client = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.create_default_context(cafile=str(authority)),
    )
    server.load_cert_chain(certificate, key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    done = set()
    while len(done) < 2:
        for end in (near, far):
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                continue


def test_the_certificate_holds_for_one_address_and_under_its_own_authority(
    tmp_path: Path,
) -> None:
    made = make_credentials(tmp_path / "a", [])
    other = make_credentials(tmp_path / "b", [])
    handshake(made.authority, made.certificate, made.key, "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(other.authority, made.certificate, made.key, "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made.authority, made.certificate, made.key, "127.0.0.2")
    authority = x509.load_pem_x509_certificate(made.authority.read_bytes())
    server = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    server.verify_directly_issued_by(authority)
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    # The authority's key is nowhere.
    public = authority.public_key()
    for path in (tmp_path / "a").iterdir():
        if b"PRIVATE KEY" in path.read_bytes():
            assert load_pem_private_key(path.read_bytes(), None).public_key() != public


def test_keys_are_what_flower_takes_and_only_their_owner_reads_them(
    tmp_path: Path,
) -> None:
    folders = [tmp_path / "node-0", tmp_path / "node-1"]
    made = make_credentials(tmp_path / "certificates", folders)
    publics = set()
    for path in made.node_keys:
        key = load_ssh_private_key(path.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert isinstance(key.curve, ec.SECP384R1)
        public = load_ssh_public_key(path.with_name("key.pub").read_bytes())
        assert public == key.public_key()
        publics.add(path.with_name("key.pub").read_bytes())
    assert len(publics) == 2
    for path in (made.key, *made.node_keys):
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    key = write_node_key(tmp_path / "key")
    before = key.read_bytes()
    with pytest.raises(ConfigurationError, match="exists and is left alone"):
        write_node_key(key)
    assert key.read_bytes() == before


def test_every_site_has_its_own_part_of_bundled_data(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, "iris", 4, default_policy(1.0))
    tables = [np.load(site.data) for site in sites]
    assert sorted(len(table) for table in tables) == [37, 37, 38, 38]
    facts = known_facts(tmp_path, "iris", sites)
    assert facts["n-examples"] == sum(len(table) for table in tables)
    assert facts["n-features"] == tables[0].shape[1]
    assert len(load_table(str(facts["bounds"])).points) == 4
    for site in sites:
        assert site.folder.stat().st_mode & 0o777 == 0o700
        assert site.data.stat().st_mode & 0o777 == 0o600
        policy = ClientPolicy.from_toml(site.policy, base=DEPLOYED)
        policy.require_complete()
        assert policy.max_epsilon_per_run == 2.0
        assert policy.require_secure_noise
        assert not policy.allow_non_private
    assert len({str(site.node_config["ledger"]) for site in sites}) == 4


def test_a_folder_gives_each_node_one_file(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("b.csv", "a.csv"):
        (data / name).write_text("x,y\n1,2\n3,4\n" + f"{name == 'a.csv':d},0\n")
    (data / "readme.txt").write_text("not data")
    sites = make_sites(tmp_path / "out", str(data), 0, default_policy(1.0))
    assert [site.data.name for site in sites] == ["a.csv", "b.csv"]
    assert known_facts(tmp_path, str(data), sites) == {"data": "", "n-features": 2}
    with pytest.raises(ConfigurationError, match="2 data files for 3 nodes"):
        make_sites(tmp_path / "again", str(data), 3, default_policy(1.0))


@pytest.mark.parametrize("header", ['age,name,"height, cm"\n', ""])
def test_a_site_says_which_columns_of_its_file_are_clustered(
    tmp_path: Path, header: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("a.csv", "b.csv"):
        (data / name).write_text(
            header + ("31,x,170\n47,y,160\n" if header else "31,170\n47,160\n")
        )
    own = make_sites(tmp_path / "out", str(data), 0, default_policy(1.0))[1].node_config
    loaded = load_declared(
        str(own["data-path"]),
        Layout.of(own["columns"], dialect=Dialect(header=own["header"] == "yes")),
    )
    assert loaded.points.tolist() == [[31.0, 170.0], [47.0, 160.0]]
    assert loaded.names == (("age", "height, cm") if header else ("x0", "x1"))


@pytest.mark.nightly
def test_what_cannot_be_deployed_is_said_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DataError, match="neither a folder nor one of"):
        make_sites(tmp_path, "digit", 3, default_policy(1.0))
    with pytest.raises(ConfigurationError, match="masks need at least 2"):
        make_sites(tmp_path, "iris", 1, default_policy(1.0))
    with pytest.raises(ConfigurationError, match="the policy key 'max-epsilom'"):
        make_sites(tmp_path, "iris", 2, "max-epsilom = 1.0")
    (tmp_path / "file").write_text("")
    assert main(["--output", str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err
    # As it is typed; tests/runs/test_deployment_tls.py calls it.
    words = [
        "-m",
        "simulations.flower",
        "--algorithm",
        "fastloyd",
        "--data",
        "iris",
        "--output",
        str(tmp_path / "new"),
    ]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "did you mean 'fastlloyd'?" in done.stderr
    assert not (tmp_path / "new" / "superlink").exists()


def test_run_configurations_are_read_as_flower_reads_them() -> None:
    assert run_settings(["a-b=1 c='x y'", 'd="z" e=true a-b=2']) == {
        "a-b": 2,
        "c": "x y",
        "d": "z",
        "e": True,
    }
    for wrong in ("epsilon", "epsilon=1.0 and", "trust=central", "a=1 a=2"):
        with pytest.raises(ConfigurationError, match="no NAME=VALUE"):
            run_settings([wrong])


def test_the_duration_is_left_open_where_the_rounds_are_not_known() -> None:
    settings = {
        "bounds": "0,1",
        "num-clients": 3,
        "algorithm": "fastlloyd",
        "n-features": 2,
    }
    assert "the server says" in expected_duration(settings)
    assert "round trips of 6 s" in expected_duration({**settings, "n-examples": 1000})


def written(folder: Path, centroids: list[list[float]], **report: object) -> Site:
    """A site after a run."""
    site = Site(folder, folder / "rows.npy")
    place = site.results / "run-5" / f"client-{folder.name}"
    place.mkdir(parents=True)
    np.savez(place / "centroids.npz", centroids=np.array(centroids))
    # Who wrote it is no difference.
    (place / "privacy_report.json").write_text(
        json.dumps({"epsilon": 1.0, "provenance": folder.name, **report})
    )
    return site


def test_results_are_compared_to_the_last_bit(tmp_path: Path) -> None:
    a, b = written(tmp_path / "a", [[0.0, 1.0]]), written(tmp_path / "b", [[0.0, 1.0]])
    assert [result.site for result in collect([a, b])] == [a, b]
    close = written(tmp_path / "c", [[0.0, float(np.nextafter(1.0, 2.0))]])
    with pytest.raises(DisagreementError, match="centroids of c"):
        collect([a, b, close])
    turned = written(tmp_path / "d", [[0.0], [1.0]])
    with pytest.raises(DisagreementError, match="centroids of d"):
        collect([a, turned])
    with pytest.raises(DisagreementError, match="differ in delta"):
        collect([a, written(tmp_path / "e", [[0.0, 1.0]], delta=1e-6)])
    with pytest.raises(DeploymentError, match="f has no result"):
        collect([a, Site(tmp_path / "f", tmp_path / "f" / "rows.npy")])
    with pytest.raises(DeploymentError, match="holds no centroids"):
        collect([written(tmp_path / "g", [[0.0, float("nan")]])])


def test_a_policy_that_no_node_would_start_with_is_refused_before_anything_runs(
    tmp_path: Path,
) -> None:
    with pytest.raises(RefusalError, match="does not limit max-epsilon-total"):
        make_sites(tmp_path, "iris", 3, "max-epsilon-per-run = 2.0\n")


def test_the_page_s_policy_allows_the_page_s_run(tmp_path: Path) -> None:
    page = (PROJECT / "flwr_dpkmeans" / "docs" / "how-to" / "deploy.md").read_text()
    text = re.search(r"```toml\n(max-epsilon-per-run.*?)```", page, re.DOTALL)
    typed = re.search(r'flwr run \. --stream --run-config "(.*)"', page)
    assert text is not None
    assert typed is not None
    pins = re.sub(
        r'"64 hexadecimal digits"', lambda found: f'"{found.start():064x}"', text[1]
    )
    (tmp_path / "policy.toml").write_text(pins)
    policy = ClientPolicy.from_toml(tmp_path / "policy.toml", base=DEPLOYED)
    settings = run_settings([typed[1]])
    config = strategy_from_run_config(settings).config
    n_clients = settings["num-clients"]
    plan = draft_plan(
        config, run_id=1, n_clients=n_clients, seed=0, n_features=config.n_features
    )
    policy.check(Proposal(plan, *cost_of(plan), Past()))
