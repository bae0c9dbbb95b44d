"""What estimators take and answer with, for signatures."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

PartyTables: TypeAlias = Any
"""Array-likes or frames, one for each party, as a list or by name; or one of all.

No type tells a list of tables from a table that is a list of rows.
"""
PartyLabels: TypeAlias = PartyTables
"""Labels, listed or by name as the tables are, or those of one table."""
Answer: TypeAlias = NDArray[np.generic]
"""What a method of a fitted estimator says of each row of one table."""
Answers: TypeAlias = Answer | list[Answer] | dict[str, Answer]
"""The same of each party's table, listed or named as the tables are."""
