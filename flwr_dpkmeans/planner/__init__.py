"""What to expect of a run before any private data are touched.

Noise, survivors, accuracy, messages, minutes.

Start from `make_forecast` (or `FederatedKMeans.plan`, or ``python -m flwr_dpkmeans
plan``).
"""

from __future__ import annotations

from flwr_dpkmeans.planner.forecast import Forecast, make_forecast
from flwr_dpkmeans.planner.request import PlanningRequest

__all__ = ["Forecast", "PlanningRequest", "make_forecast"]
