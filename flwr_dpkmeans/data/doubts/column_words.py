"""What the words in a column's name say of it."""

from __future__ import annotations

import re

_WORD = re.compile(r"[A-Z]?[a-zäöüßéèê]+|[A-Z]+(?![a-z])|\d+|#")


_INDEX_NAME = re.compile(
    r"|unnamed: ?\d+|index|idx|level_\d+|obs|#|nr|no|lfd\W*nr\W*"
    r"|row[ _.]?(names?|id|nr|num|number|index)?"
)


_ID_WORDS = frozenset(
    {
        "id",
        "ids",
        "identifier",
        "uuid",
        "guid",
        "pid",
        "mrn",
        "ssn",
        "kennung",
        "fallnummer",
        "fallnr",
        "patientennummer",
        "patientennr",
        "patnr",
        "versichertennummer",
        "kundennummer",
    }
)


_PERSON_WORDS = frozenset(
    {
        "patient",
        "person",
        "subject",
        "participant",
        "case",
        "member",
        "customer",
        "client",
        "user",
        "account",
        "employee",
        "student",
        "pupil",
        "donor",
        "resident",
        "respondent",
        "household",
        "pat",
        "patienten",
        "patientin",
        "proband",
        "probanden",
        "fall",
    }
)


_NUMBER_WORDS = frozenset({"no", "nr", "num", "number", "code", "key", "nummer"})


def words_of(name: str) -> list[str]:
    """Split a name such as arrival_hour, arrivalHour or "Arrival hour" into words.

    All of them are in small letters.
    """
    return [word.lower() for word in _WORD.findall(name)]


def is_identifier_name(name: object) -> bool:
    """Whether a column is called as identifiers are.

    `patient_id`, `PatientID`, `patientid`, `subject`, `case_no`.

    Examples
    --------
    >>> [is_identifier_name(name) for name in ("patient_id", "SubjectNo", "userid")]
    [True, True, True]
    >>> [is_identifier_name(name) for name in ("patient_age", "humid")]
    [False, False]
    """
    words = words_of(str(name))
    if not words:
        return False
    if words[-1] in _ID_WORDS or words[-1].removesuffix("id") in _PERSON_WORDS:
        return True
    if len(words) < 2 or words[-1] not in _NUMBER_WORDS:
        return False
    return words[-2] in _PERSON_WORDS or words[-2] in _ID_WORDS


def is_index_name(name: object) -> bool:
    """Whether a column is called as indices are, also by an empty text.

    What is no text is no name. Pandas writes an index without one as ``Unnamed: 0``.
    """
    if not isinstance(name, str):
        return False
    return _INDEX_NAME.fullmatch(name.strip().lower()) is not None
