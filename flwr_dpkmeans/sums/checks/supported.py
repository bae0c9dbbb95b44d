"""Combinations of task, unit, trust model and server data that exist."""

from __future__ import annotations

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.privacy.release import NoiseShape, PrivacyUnit
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.public_facts import ServerData
from flwr_dpkmeans.sums.task import TASKS, Task
from flwr_dpkmeans.sums.trust import trust_model


def require_supported(config: RunConfig, *, has_server_data: bool) -> None:
    """Refuse combinations that do not exist, with the nearest that does.

    Of task, unit, trust model and server data.
    """
    settings = config.settings
    task = config.task
    trust = trust_model(settings.trust)
    if not task.protects(settings.unit):
        units = [repr(unit.value) for unit in PrivacyUnit if task.protects(unit)]
        others = [
            name for name, other in TASKS.items() if other.protects(settings.unit)
        ]
        raise ConfigurationError(
            f"unit is {settings.unit.value!r}, but {task.name!r} protects"
            f" {', '.join(units)} only: choose unit={units[0]}, or the algorithm"
            f" {others[0]!r} for {settings.unit.value!r}."
        )
    is_counted = settings.n_examples is None and task.counts(settings.unit)
    if is_counted and settings.client_sampling_rate < 1.0:
        # What follows from a count has no price over samples that holds for all its
        # outcomes.
        raise ConfigurationError(
            f"client_sampling_rate is {settings.client_sampling_rate:g}, but"
            f" {task.name!r} makes a private count that its rounds follow from: declare"
            " n_examples or leave the rate at 1."
        )
    if task.tolerance is not None and not trust.server_has_result():
        # How many rounds there are would tell it, of a noisy sum whose noise it knows,
        # on which side of a number it is.
        raise ConfigurationError(
            f"tolerance is {task.tolerance:g}, but under trust {settings.trust!r} the"
            " server knows the noise, so that it must not learn how far centroids"
            " moved: leave tolerance out, or choose trust='distributed'."
        )
    _require_delta(config)
    require_server_data(task, has_server_data=has_server_data)
    if settings.private_bounds and has_server_data:
        raise ConfigurationError(
            "bounds are 'private' (or a schema's scale is standard) and server_data was"
            " given, but bounds follow from the server's own points at no cost: leave"
            " bounds out, or choose another scale."
        )
    task.require_supported(settings, trust)


def _require_delta(config: RunConfig) -> None:
    """Refuse a delta of 0 where a release has Gaussian noise, for which none holds."""
    settings = config.settings
    task = config.task
    others = settings.reserved_share(counts=task.counts(settings.unit))
    is_all_laplace = task.noise is NoiseShape.LAPLACE and others == 0.0
    if settings.delta != 0.0 or is_all_laplace:
        return
    raise ConfigurationError(
        "delta is 0, but not all noise of this run is Laplace (a private count, private"
        " bounds, a profile and an evaluation have Gaussian noise): give 1e-6, or"
        " algorithm='sulloyd' with n_examples declared and none of these."
    )


def require_server_data(task: Task | type[Task], *, has_server_data: bool) -> None:
    """Refuse a task that lacks the server's own points, or has no use for them."""
    use = task.server_data
    if not has_server_data and use is ServerData.NEEDED:
        raise ConfigurationError(
            f"{task.name!r} starts from the server's own points: give server_data, or"
            " use 'proxy_lloyd'."
        )
    if has_server_data and use is ServerData.NONE:
        raise ConfigurationError(
            f"server_data was given, but {task.name!r} starts without it: leave it out,"
            " or use 'proxy_lloyd'."
        )
