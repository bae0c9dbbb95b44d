"""The strategy that sums arrays of anybody's app."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flwr.app import ArrayRecord

from flwr_dpkmeans import foreign_names
from flwr_dpkmeans.errors import ConfigurationError, listed, nearest
from flwr_dpkmeans.flower.strategies.strategy_result import result_type
from flwr_dpkmeans.flower.strategy import PrivateKMeans, recorded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class SecureSum(PrivateKMeans, algorithm="array_sum"):
    """Sum what clients' own apps add to public arrays, behind `secure_sum_mod`.

    Each client's part stays masked.

    Parameters
    ----------
    arrays : ArrayRecord
        What all begin with: zeros for a plain sum, or a model. Results have the same
        names, shapes and types; means and noisy sums of whole numbers are float64.
    epsilon : float, optional
        Of all rounds together, for a client's whole part; None: no noise, so that the
        result is not private.
    clip : float, optional
        L2 norm at which what a client adds in a round is cut off. None: 1.0 with
        `epsilon`; without, nothing is cut.
    largest : float, optional
        Without `epsilon` and `clip`: the largest magnitude of a value that a client may
        add. A client that adds more is left out, and counted. None: the largest with
        which values are rounded to 2^-24, at most 2^28.
    most_examples : int
        0: what clients add is summed, else averaged, by the metric ``num-examples`` up
        to this number.
    **options
        As in `PrivateKMeans`, such as ``trust`` (``"distributed"`` unless given) or
        ``dropout``; ``max_iter`` rounds, in each of which clients answer changed
        arrays.

    Raises
    ------
    ConfigurationError
        At once, if a value is out of range, or an option does not exist here.

    Examples
    --------
    >>> import numpy as np
    >>> SecureSum(ArrayRecord([np.zeros((2, 3))]), clip=1.0, epsilon=2.0).config.arrays
    (('0', (2, 3)),)
    """

    def __init__(
        self,
        arrays: ArrayRecord,
        *,
        epsilon: float | None = None,
        clip: float | None = None,
        largest: float | None = None,
        most_examples: int = 0,
        **options: Any,
    ) -> None:
        for name in options.keys() - _SUM_OPTIONS:
            valid = {*_SUM_OPTIONS, "epsilon", "clip", "largest", "most_examples"}
            answer = foreign_names.answer(name, taken=valid)
            mend = f", as {answer}." if answer else f": {nearest(name, valid)}"
            raise ConfigurationError(f"SecureSum has no option {name!r}{mend}")
        values = {name: array.numpy() for name, array in arrays.items()}
        _require_summable(values)
        exact = epsilon is None
        keeps_whole = exact and not most_examples
        doubles = [value.astype("<f8").tobytes() for value in values.values()]
        shapes = [(name, value.shape) for name, value in values.items()]
        types = [result_type(value.dtype, keeps_whole) for value in values.values()]
        super().__init__(
            epsilon=1.0 if epsilon is None else epsilon,
            arrays=tuple(shapes),
            dtypes=tuple(types),
            start=b64encode(b"".join(doubles)).decode(),
            bounds=(-1.0, 1.0),
            n_features=1,
            unit="client",
            algorithm="exact_array_sum" if exact else "array_sum",
            clip=clip,
            largest=largest,
            most_examples=most_examples,
            **options,
        )

    def _arrays(self) -> ArrayRecord | None:
        """The arrays so far.

        What stands in the ring is of no use to who evaluates a round.
        """
        server = self.run
        if server.clusters is None:
            return None
        return recorded(server.plan.task.result(server.plan, server.clusters).arrays)


_SUM_OPTIONS = frozenset(
    (
        *(
            "delta",
            "trust",
            "noise",
            "random_state",
            "max_iter",
            "client_sampling_rate",
        ),
        *(
            "n_clients",
            "min_clients",
            "max_silent",
            "max_retries",
            "max_epsilon",
            "dropout",
        ),
        *("cohort", "masking", "timeouts", "on_step", "parties"),
    )
)
"""Options of `SecureSum` besides those that it names."""

_MOST_WHOLE = 2**52
"""Whole numbers beyond have, with a sum of as much, no double of their own."""


def _require_summable(values: Mapping[str, NDArray[np.generic]]) -> None:
    """Refuse first values that are no real numbers.

    Or whole ones that a double would change.
    """
    foreign = [name for name, value in values.items() if value.dtype.kind not in "biuf"]
    if foreign:
        raise ConfigurationError(
            f"arrays {listed(foreign)} hold no real numbers: give some that do."
        )
    wholes = {
        name: value
        for name, value in values.items()
        if value.dtype.kind in "iu" and value.size
    }
    for name, value in wholes.items():
        largest = max(abs(int(value.min())), abs(int(value.max())))
        if largest > _MOST_WHOLE:
            raise ConfigurationError(
                f"array {name!r} begins with {largest}, but whole numbers are summed"
                " exactly up to 2^52 only: begin with zeros, and add the first values"
                " to the result."
            )
