"""The census as clients: filters, fixed encoding and the server's share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.installed import install

from flwr_dpkmeans.errors import DataError
from simulations.sources.census import Employment, load_census
from simulations.sources.census_codes import CODEBOOK_2018, STATES
from simulations.sources.federated import FederatedData

# The order of the real files differs from that of the task, and they have many more
# columns.
PERSON = {
    "RT": "P", "SERIALNO": "2018GQ0000049", "ST": "01", "PWGTP": "75", "AGEP": "40",
    "COW": "5", "MAR": "1", "RELP": "00", "SCHL": "21", "SEX": "1", "WKHP": "40",
    "OCCP": "0120", "PINCP": "90000", "POBP": "001", "RAC1P": "1", "SOCP": "1191XX",
}  # fmt: skip
COLUMNS = tuple(PERSON)


def write(
    folder: Path, people: Iterable[dict[str, str]], name: str = "psam_p01.csv"
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        ",".join({**PERSON, **person}[column] for column in COLUMNS)
        for person in people
    ]
    path = folder / name
    path.write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")
    return path


def load(
    folder: Path, employment: int = 5, *, seed: int = 0, **options: Any
) -> FederatedData:
    options = {"server_points_of_type": 0, "server_points_of_others": 0, **options}
    return load_census(folder, employment, rng=np.random.default_rng(seed), **options)


def failure(folder: Path, error: type[Exception] = DataError, **options: Any) -> str:
    with pytest.raises(error) as caught:
        load(folder, **options)
    return str(caught.value)


def features_of(data: FederatedData, row: np.ndarray) -> set[str]:
    return {data.feature_names[index] for index in np.flatnonzero(row)}


@pytest.fixture
def three_states(tmp_path: Path) -> Path:
    """30 federal employees and 20 others in each of three states.

    The age tells the rows of a state apart.
    """
    for number in (56, 1, 72):
        people = [
            {"ST": f"{number:02d}", "AGEP": str(20 + i), "COW": "5" if i < 30 else "2"}
            for i in range(50)
        ]
        write(tmp_path, people, f"psam_p{number:02d}.csv")
    return tmp_path


def test_codebook_has_the_819_features_of_the_paper(tmp_path: Path) -> None:
    write(tmp_path, [{}])
    data = load(tmp_path)
    assert (
        data.n_features
        == len(data.feature_names)
        == len(set(data.feature_names))
        == 819
    )
    assert {name: len(codes) for name, codes in CODEBOOK_2018.items()} == {
        "SCHL": 24, "MAR": 5, "OCCP": 530, "POBP": 224,
        "RELP": 18, "SEX": 2, "RAC1P": 9,
    }  # fmt: skip
    assert all(list(codes) == sorted(set(codes)) for codes in CODEBOOK_2018.values())
    # The radius of the data in the paper's table 1.
    assert round(float(np.linalg.norm(data.clients[0], axis=1).max()), 2) == 2.65


def test_one_feature_per_column_is_1(tmp_path: Path) -> None:
    write(
        tmp_path,
        [
            {},
            {
                "SEX": "2",
                "OCCP": "9920",
                "RELP": "17",
                "POBP": "554",
                "SCHL": "24",
                "MAR": "5",
            },
        ],
    )
    data = load(tmp_path)
    assert features_of(data, data.clients[0][0]) == {
        "SCHL_21", "MAR_1", "OCCP_120", "POBP_1", "RELP_0", "SEX_1", "RAC1P_1",
    }  # fmt: skip
    assert features_of(data, data.clients[0][1]) == {
        "SCHL_24", "MAR_5", "OCCP_9920", "POBP_554", "RELP_17", "SEX_2", "RAC1P_1",
    }  # fmt: skip
    assert set(np.unique(data.clients[0])) == {0.0, 1.0}
    assert data.clients[0].dtype == np.float64


@pytest.mark.parametrize("blank", ["", " "])
def test_missing_values_are_a_category(tmp_path: Path, blank: str) -> None:
    write(tmp_path, [{"OCCP": blank, "SCHL": blank}])
    data = load(tmp_path)
    assert {"OCCP_missing", "SCHL_missing"} <= features_of(data, data.clients[0][0])


def test_features_do_not_depend_on_the_people(
    three_states: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    write(other, [{"OCCP": "0010", "POBP": "501"}])
    assert load(other).feature_names == load(three_states).feature_names


@pytest.mark.parametrize(
    ("column", "kept", "dropped"),
    [
        ("AGEP", "17", "16"),
        ("PINCP", "101", "100"),
        ("WKHP", "1", "0"),
        ("PWGTP", "1", "0"),
        ("PINCP", "101", ""),
    ],
)
def test_filters_of_the_task(
    tmp_path: Path, column: str, kept: str, dropped: str
) -> None:
    write(tmp_path, [{column: kept}, {column: dropped}, {column: kept}])
    assert load(tmp_path).n_points == 2


def test_clients_are_states_with_one_type(three_states: Path) -> None:
    data = load(three_states)
    assert data.client_names == ("AL", "WY", "PR")
    assert [len(points) for points in data.clients] == [30, 30, 30]
    assert [
        len(points) for points in load(three_states, Employment.NOT_FOR_PROFIT).clients
    ] == [20, 20, 20]
    assert data.n_clients == 3
    assert data.n_points == 90


def test_server_has_a_few_of_the_type_who_leave_the_clients(three_states: Path) -> None:
    bins = {"with_bins": True}
    data = load(
        three_states, server_points_of_type=20, server_points_of_others=40, **bins
    )
    assert data.server_points.shape == (60, data.n_features)
    assert data.n_points == 90 - 20
    everything = np.concatenate(
        [*load(three_states, **bins).clients, *load(three_states, 2, **bins).clients]
    )
    split = np.concatenate([*data.clients, data.server_points])
    others_left = 60 - 40
    assert len(split) == len(everything) - others_left
    # What was taken is what is missing: per feature, clients and server's first rows
    # add up to all of the type.
    of_type = np.concatenate(load(three_states, **bins).clients).sum(axis=0)
    assert (
        np.concatenate(data.clients).sum(axis=0) + data.server_points[:20].sum(axis=0)
    ).tolist() == of_type.tolist()


def test_other_types_at_the_server(tmp_path: Path) -> None:
    write(
        tmp_path,
        [
            {"COW": cow, "SCHL": cow or "24"}
            for cow in ("1", "2", "3", "5", "5", "5", "")
        ],
    )
    data = load(tmp_path, server_points_of_type=1, server_points_of_others=3)
    schooling = [
        min(n for n in features_of(data, row) if n.startswith("SCHL"))
        for row in data.server_points
    ]
    assert schooling[0] == "SCHL_5"
    # A person without a class of worker is of no type.
    assert set(schooling[1:]) == {"SCHL_1", "SCHL_2", "SCHL_3"}


def test_server_follows_the_generator(three_states: Path) -> None:
    options = {
        "server_points_of_type": 5,
        "server_points_of_others": 5,
        "with_bins": True,
    }
    first, again, other = (
        load(three_states, seed=seed, **options).server_points for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_bins_of_age_and_hours(tmp_path: Path) -> None:
    ages = {
        "17": "17-24",
        "24": "17-24",
        "25": "25-34",
        "84": "75-84",
        "85": "85+",
        "95": "85+",
    }
    hours = {
        "1": "1-9",
        "9": "1-9",
        "10": "10-19",
        "59": "50-59",
        "60": "60+",
        "99": "60+",
    }
    write(
        tmp_path,
        [{"AGEP": age, "WKHP": hour} for age, hour in zip(ages, hours, strict=True)],
    )
    data = load(tmp_path, with_bins=True)
    assert data.n_features == 819 + 8 + 7
    for row, age, hour in zip(
        data.clients[0], ages.values(), hours.values(), strict=True
    ):
        assert {f"AGEP_{age}", f"WKHP_{hour}"} <= features_of(data, row)
        assert row.sum() == 9


def test_too_few_people(three_states: Path) -> None:
    assert (
        failure(three_states, server_points_of_type=91)
        == "the server is to have 91 people of type 5, but the census files have 90:"
        " ask for fewer, or add files."
    )
    assert "1000 people of other types, but the census files have 60" in failure(
        three_states, server_points_of_others=1000
    )


def test_unknown_code_is_counted_and_not_shown(tmp_path: Path) -> None:
    write(tmp_path, [{"OCCP": "1020"}, {"OCCP": "1020"}, {}])
    message = failure(tmp_path)
    assert (
        message
        == "the column 'OCCP' has 2 rows with a code that is not in the codebook, but"
        " every code must be: give the codebook of the year of the files, as"
        " read_codebook reads it."
    )


def fake_folktables(
    calls: list[tuple[str, dict[str, Any]]], *, fails: bool = False
) -> ModuleType:
    """A stand-in that writes files where folktables does."""
    module = ModuleType("folktables")

    class ACSDataSource:
        def __init__(self, **options: Any) -> None:
            self.options = options

        def get_data(self, states: list[str], download: bool) -> None:
            calls.append((states[0], self.options))
            if fails:
                raise OSError("no connection")
            number = next(
                number for number, name in STATES.items() if name == states[0]
            )
            folder = (
                Path(self.options["root_dir"])
                / self.options["survey_year"]
                / self.options["horizon"]
            )
            write(folder, [{"ST": f"{number:02d}"}], f"psam_p{number:02d}.csv")

    module.ACSDataSource = ACSDataSource  # type: ignore[attr-defined]
    return module


def test_download_fetches_the_51_states_that_are_missing(
    three_states: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []
    install(monkeypatch, folktables=fake_folktables(calls))
    data = load(three_states, download=True)
    assert [name for name, _ in calls] == [
        name for name in STATES.values() if name not in ("AL", "WY", "PR", "DC")
    ]
    assert calls[0][1] == {
        "survey_year": "2018", "horizon": "1-Year", "survey": "person",
        "root_dir": str(three_states),
    }  # fmt: skip
    assert data.n_clients == 51
    assert "DC" not in data.client_names
    assert data.n_points == 90 + 48
    calls.clear()
    assert load(three_states, download=True, states=["DC", "AL"]).client_names == (
        "DC",
        "AL",
    )
    assert [name for name, _ in calls] == ["DC"]
