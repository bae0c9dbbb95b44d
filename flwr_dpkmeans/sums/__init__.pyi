"""Public names of this room, for type checkers and editors.

`__init__.py` imports each when it is first used.
"""

from flwr_dpkmeans.privacy.release import Block as Block
from flwr_dpkmeans.privacy.release import NoiseShape as NoiseShape
from flwr_dpkmeans.privacy.release import Norm as Norm
from flwr_dpkmeans.privacy.release import PrivacyUnit as PrivacyUnit
from flwr_dpkmeans.privacy.release import ReleasedSum as ReleasedSum
from flwr_dpkmeans.privacy.release import Sensitivity as Sensitivity
from flwr_dpkmeans.sums.checks.neighbours import check_sensitivity as check_sensitivity
from flwr_dpkmeans.sums.option_rules import Options as Options
from flwr_dpkmeans.sums.option_rules import choice as choice
from flwr_dpkmeans.sums.option_rules import flag as flag
from flwr_dpkmeans.sums.option_rules import real as real
from flwr_dpkmeans.sums.option_rules import whole as whole
from flwr_dpkmeans.sums.outcome import Result as Result
from flwr_dpkmeans.sums.public_facts import PublicFacts as PublicFacts
from flwr_dpkmeans.sums.round import Algorithm as Algorithm
from flwr_dpkmeans.sums.round import Array as Array
from flwr_dpkmeans.sums.round import PrivateSum as PrivateSum
from flwr_dpkmeans.sums.round import State as State
from flwr_dpkmeans.sums.settings import Settings as Settings
from flwr_dpkmeans.sums.task import Task as Task
from flwr_dpkmeans.sums.task import register as register
from flwr_dpkmeans.sums.trust import Broadcast as Broadcast
from flwr_dpkmeans.sums.trust import Shares as Shares
from flwr_dpkmeans.sums.trust import TrustModel as TrustModel
from flwr_dpkmeans.sums.trust import register_trust as register_trust
