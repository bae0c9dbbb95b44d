"""The US census as clients: one per state, each with the people of one kind of
employment.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ConfigurationError, DataError, nearest, require_whole
from simulations.sources.census_codes import CODEBOOK_2018, STATES
from simulations.sources.census_files import download_files, read_people
from simulations.sources.federated import FederatedData
from simulations.sources.mixture import check_generator

# Lower ends of the public bins of the two numeric columns; the last bins are open.
_BINS: Mapping[str, tuple[int, ...]] = {
    "AGEP": (17, 25, 35, 45, 55, 65, 75, 85),
    "WKHP": (1, 10, 20, 30, 40, 50, 60),
}


class Employment(IntEnum):
    """The class of worker, as coded in the column COW."""

    FOR_PROFIT = 1
    """Employee of a private for-profit company or business, or of an individual."""
    NOT_FOR_PROFIT = 2
    """Employee of a private not-for-profit, tax-exempt, or charitable organization."""
    LOCAL_GOVERNMENT = 3
    """Local government employee."""
    STATE_GOVERNMENT = 4
    """State government employee."""
    FEDERAL_GOVERNMENT = 5
    """Federal government employee."""
    SELF_EMPLOYED = 6
    """Self-employed in own not incorporated business, professional practice, or farm.
    """
    SELF_EMPLOYED_INCORPORATED = 7
    """Self-employed in own incorporated business, professional practice or farm."""
    UNPAID_FAMILY = 8
    """Working without pay in family business or farm."""
    UNEMPLOYED = 9
    """Unemployed and last worked 5 years ago or earlier or never worked."""


def load_census(
    folder: str | Path,
    employment: Employment | int = Employment.FEDERAL_GOVERNMENT,
    *,
    rng: np.random.Generator,
    states: Sequence[str] | None = None,
    server_points_of_type: int = 20,
    server_points_of_others: int = 1000,
    with_bins: bool = False,
    codebook: Mapping[str, Sequence[int]] = CODEBOOK_2018,
    download: bool = False,
) -> FederatedData:
    r"""Load the people of one kind of employment, one client per state, as binary
    features.

    The rows are those of the ACSIncome task of folktables: AGEP > 16, PINCP > 100, WKHP
    > 0 and PWGTP >= 1 [2]_. Each of SCHL, MAR, OCCP, POBP, RELP, SEX and RAC1P becomes
    one binary feature per code of the codebook, and one more for a missing value: 819
    features, of which 7 are 1 in each row [1]_. The codebook is public, so that the
    features never depend on who is in the data. The class of worker is left out, as it
    is the same for all; so are the income, which is the target of the task, and age and
    hours, unless ``with_bins`` is set.

    The server has a few people of the chosen type, who are taken out of the clients'
    data, and people of the other types. Both are drawn from all states together without
    replacement.

    Parameters
    ----------
    folder : str or Path
        Where the person files of the American Community Survey are, named
        ``psam_p01.csv`` and so on, or ``psam_pusa.csv`` and ``psam_pusb.csv`` for the
        whole country; or the folder of folktables above them.
    employment : Employment or int
        The type of the clients' people. The paper has NOT_FOR_PROFIT,
        FEDERAL_GOVERNMENT and SELF_EMPLOYED.
    rng : numpy.random.Generator
        Draws the server's points.
    states : sequence of str, optional
        Postal codes, such as ``("AL", "WY")``; all states in the folder if left out.
        The paper has the 51 states of folktables: the 50 states and Puerto Rico,
        without the District of Columbia.
    server_points_of_type, server_points_of_others : int
        The number of the server's points of the chosen type and of any other type.
    with_bins : bool
        Whether to add 8 binary features for the age (17-24, 25-34, ..., 75-84, 85 and
        over) and 7 for the weekly hours (1-9, 10-19, ..., 50-59, 60 and over).
    codebook : mapping of str to sequence of int
        The codes of each categorical column; ``read_codebook`` reads those of another
        year.
    download : bool
        Whether to fetch missing files of 2018 from the Census Bureau by the package
        folktables.

    Returns
    -------
    FederatedData
        The clients are in the order of the state's FIPS number (or of ``states``) and
        are named by postal code; one without people of the type is empty. The server's
        people of the type come first.

    Raises
    ------
    DataError
        If a file, a column or a state is missing, a code is not in the codebook, or
        there are too few people. No message contains a value of a cell.
    ConfigurationError
        If a parameter is out of its range, or ``download`` is set without the package
        folktables.

    References
    ----------
    .. [1] J. Scott, C. H. Lampert, D. Saulpic, "Differentially private federated
    k-means clustering with server-side
       data", 2025, appendix G.1.
    .. [2] F. Ding, M. Hardt, J. Miller, L. Schmidt, "Retiring Adult: new datasets for
    fair machine learning", 2021.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> header = "ST,AGEP,COW,SCHL,MAR,OCCP,POBP,RELP,WKHP,SEX,RAC1P,PINCP,PWGTP"
    >>> client = "1,40,5,21,1,0120,001,00,40,1,1,90000,10"
    >>> server = "1,50,5,16,2,0120,001,00,40,2,1,50000,10"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "psam_p01.csv"
    ...     _ = file.write_text("\n".join([header, client, server]))
    ...     data = load_census(
    ...         folder,
    ...         rng=np.random.default_rng(0),
    ...         server_points_of_type=1,
    ...         server_points_of_others=0,
    ...     )
    >>> data.client_names, data.clients[0].shape, int(data.clients[0].sum())
    (('AL',), (1, 819), 7)
    """
    check_generator(rng)
    require_whole("server_points_of_type", server_points_of_type, 0)
    require_whole("server_points_of_others", server_points_of_others, 0)
    require_whole("employment", employment, 1, most=len(Employment))
    codebook = {column: sorted(codes) for column, codes in codebook.items()}
    numbers = _numbers(states)
    if download:
        download_files(Path(folder), numbers)
    people = read_people(Path(folder), numbers, tuple(codebook))
    present = _present(people["ST"], numbers, Path(folder))

    of_type = _choose(
        people["COW"] == employment,
        server_points_of_type,
        f"type {int(employment)}",
        rng,
    )
    is_other = (people["COW"] != employment) & ~np.isnan(people["COW"])
    of_others = _choose(is_other, server_points_of_others, "other types", rng)
    stays = people["COW"] == employment
    stays[of_type] = False

    ranges = _BINS if with_bins else {}
    names = _feature_names(codebook, ranges)
    clients = (np.flatnonzero(stays & (people["ST"] == number)) for number in present)
    return FederatedData(
        tuple(_encode(people, rows, codebook, ranges, len(names)) for rows in clients),
        _encode(
            people, np.concatenate([of_type, of_others]), codebook, ranges, len(names)
        ),
        tuple(STATES[number] for number in present),
        names,
    )


def _numbers(states: Sequence[str] | None) -> list[int] | None:
    """Turn postal codes into FIPS numbers, each at most once."""
    if states is None:
        return None
    numbers = {name: number for number, name in STATES.items()}
    for name in states:
        if name not in numbers:
            raise ConfigurationError(
                f"the state is {name!r}, but it must be a postal code:"
                f" {nearest(name, numbers)}"
            )
    if not states or len(set(states)) < len(states):
        raise ConfigurationError(
            f"states has {len(states)} entries of which {len(set(states))} differ, but"
            " it must name at least 1 state and each only once: correct the list, or"
            " leave it out for all states of the folder."
        )
    return [numbers[name] for name in states]


def _present(
    of_rows: NDArray[np.float64], states: list[int] | None, folder: Path
) -> list[int]:
    """Return the states that become clients.

    Refuse one without a row, and rows of no state.
    """
    if not np.isin(of_rows, list(STATES)).all():
        raise DataError(
            f"the census files in {str(folder.absolute())!r} have rows whose ST is no"
            " state's FIPS number, but every row needs one: remove these rows."
        )
    numbers = [int(number) for number in np.unique(of_rows)]
    for number in states or ():
        if number not in numbers:
            raise DataError(
                f"the census files in {str(folder.absolute())!r} have no row of"
                f" {STATES[number]} that passes the filters, but this state is asked"
                f" for: add psam_p{number:02d}.csv, or leave the state out."
            )
    return numbers if states is None else states


def _choose(
    candidates: NDArray[np.bool_], count: int, what: str, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw rows for the server without replacement."""
    rows = np.flatnonzero(candidates)
    if len(rows) < count:
        raise DataError(
            f"the server is to have {count} people of {what}, but the census files have"
            f" {len(rows)}: ask for fewer, or add files."
        )
    return rng.choice(rows, size=count, replace=False)


def _feature_names(
    codebook: Mapping[str, Sequence[int]], bins: Mapping[str, tuple[int, ...]]
) -> tuple[str, ...]:
    """Name the binary features: OCCP_120, OCCP_missing, AGEP_17-24, AGEP_85+."""
    names = [
        f"{column}_{code}"
        for column, codes in codebook.items()
        for code in (*codes, "missing")
    ]
    for column, ends in bins.items():
        names += [
            f"{column}_{low}-{high - 1}" for low, high in itertools.pairwise(ends)
        ]
        names.append(f"{column}_{ends[-1]}+")
    return tuple(names)


def _encode(
    people: dict[str, NDArray[np.float64]],
    rows: NDArray[np.int64],
    codebook: Mapping[str, Sequence[int]],
    bins: Mapping[str, tuple[int, ...]],
    n_features: int,
) -> NDArray[np.float64]:
    """Write one 1 per column and row into an array of zeros."""
    points = np.zeros((len(rows), n_features))
    everyone = np.arange(len(rows))
    offset = 0
    for column, codes in codebook.items():
        points[everyone, offset + _positions(people[column][rows], codes, column)] = 1.0
        offset += len(codes) + 1
    for column, ends in bins.items():
        points[
            everyone,
            offset + np.searchsorted(ends, people[column][rows], side="right") - 1,
        ] = 1.0
        offset += len(ends)
    return points


def _positions(
    values: NDArray[np.float64], codes: Sequence[int], column: str
) -> NDArray[np.int64]:
    """Return the place of each value in the ascending list of codes.

    Missing values come after the last.
    """
    listed = np.asarray(codes, dtype=np.float64)
    places = np.searchsorted(listed, values)
    is_missing = np.isnan(values)
    is_listed = listed[np.minimum(places, len(listed) - 1)] == values
    n_unknown = int((~is_listed & ~is_missing).sum())
    if n_unknown:
        raise DataError(
            f"the column {column!r} has {n_unknown} rows with a code that is not in the"
            " codebook, but every code must be: give the codebook of the year of the"
            " files, as read_codebook reads it."
        )
    return np.where(is_missing, len(listed), places).astype(np.int64)
