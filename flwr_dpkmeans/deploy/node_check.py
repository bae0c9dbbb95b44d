"""What can be known of a node before a run.

One finding for each item, and what is wrong is said with its mend.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import click
from cryptography import x509

from flwr_dpkmeans.data.files.sources import is_clustered
from flwr_dpkmeans.data.loading.declared_tables import load_stated
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.row_facts import RowFacts
from flwr_dpkmeans.data.loading.schema_tables import look_by_schema
from flwr_dpkmeans.data.loading.table import Table
from flwr_dpkmeans.data.loading.unit_columns import (
    UnitColumns,
    person_column_of,
    weight_column_of,
)
from flwr_dpkmeans.data.schema import MOST_OUTSIDE, Schema
from flwr_dpkmeans.deploy.finding import Finding, NoteError
from flwr_dpkmeans.deploy.findings import (
    app_hash,
    existing,
    finding_of,
    is_this_machine,
    require_days,
    require_free,
    require_pairs,
    require_room,
    require_secret,
    require_tried_flower,
    require_unchangeable,
    require_writable,
)
from flwr_dpkmeans.deploy.guard.confinement import can_confine
from flwr_dpkmeans.deploy.guard.private_folder import require_private
from flwr_dpkmeans.deploy.guard.process_limits import (
    require_limits,
    require_programs_run,
    require_temporary_folder,
)
from flwr_dpkmeans.deploy.invitation import (
    Invitation,
    key_fingerprint,
    plain_certificates,
)
from flwr_dpkmeans.deploy.last_message import LastMessage, utc
from flwr_dpkmeans.deploy.monitoring.start_pace import (
    advised_timeout,
    seconds_since_start,
)
from flwr_dpkmeans.deploy.node_options import Isolation, NodeOptions
from flwr_dpkmeans.deploy.superlink_answer import (
    MOST_CLOCK_SECONDS,
    Answer,
    ask,
    private_key,
)
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError, listed
from flwr_dpkmeans.flower import _private
from flwr_dpkmeans.flower.row_cluster import ClusterClient, summed_elsewhere
from flwr_dpkmeans.flower.run_config import strategy_from_run_config
from flwr_dpkmeans.flower.run_keys import run_keys
from flwr_dpkmeans.log import LogOptions
from flwr_dpkmeans.node.belonging import Belonging, belonging_path
from flwr_dpkmeans.node.guard import NodeGuard
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.node.ledger import unfinished
from flwr_dpkmeans.node.ledger_file import FileLedger, head_path
from flwr_dpkmeans.node.node_log import unfinished_sentence
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy
from flwr_dpkmeans.privacy.release import PrivacyUnit

_SECONDS_TO_IMPORT = seconds_since_start()
"""Of this process, which imports what an app does."""


def running(options: NodeOptions) -> int | None:
    """The process of this node's SuperNode.

    By the key and the port on its command line, where Linux tells.
    """
    words = {b"--port", str(options.port).encode(), os.fsencode(options.key or "")}
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ends at this moment
            if words <= set(place.read_bytes().split(b"\0")):
                return int(place.parent.name)
    return None


def stated_run(text: str) -> dict[str, object]:
    """Read what the server's operator will type."""
    require_pairs("run-config", text)
    try:
        stated: dict[str, object] = {}
        if text:
            stated |= _private.parsed_settings([text])
    except (click.ClickException, OSError, ValueError) as error:
        raise ConfigurationError(
            f"run-config is {text!r}, which cannot be read ({error}): correct it."
        ) from error
    return stated


def check(
    path: Path,
    options: NodeOptions,
    *,
    apps: bool,
    starting: bool = False,
    patient: bool = False,
) -> list[Finding]:
    """Look at everything that a node needs, one finding for each item.

    Looks only, and changes nothing.

    Where isolation is "process", `apps` looks at what the user who runs the apps needs,
    else at the SuperNode's part.
    """
    both, looks = (
        options.isolation is Isolation.SUBPROCESS,
        NodeCheck(path, options, starting, patient),
    )
    items = ["file", "app", "flower"]
    items += (
        ["port", "connection", "superlink", "clock", "online"]
        if both or not apps
        else []
    )
    if both or apps:
        items += [
            "home",
            "answers",
            "policy",
            *(["gate"] if options.gate else []),
            "identity",
            "ledger",
            "run",
            "data",
            "belonging",
            "units",
            "output",
            "disk",
            "limits",
            "pace",
            "user",
        ]
    if not options.allowed_apps:
        # The app behind the gate reads its rows itself, which need be no table.
        items = [item for item in items if item not in ("run", "data", "units")]
    return [finding_of(item, getattr(looks, f"_{item}")) for item in items]


@dataclass(frozen=True)
class NodeCheck:
    """A look at each item.

    What it says if it is as it should be, or an error or a note.
    """

    path: Path
    options: NodeOptions
    starting: bool = False
    patient: bool = False

    def _file(self) -> str:
        require_unchangeable(self.path)
        return f"only its owner and root can change {self.path}"

    def _app(self) -> str:
        allowed, invitation = self.options.runnable_apps, self.invitation
        if not all(app.strip("0") for app in allowed):
            raise ConfigurationError(
                "allowed-apps still has the example's zeros: put the hash of a reviewed"
                " app there."
            )
        digest_of_copy = app_hash(self.options.app) if self.options.app else ""
        for whose, digest in (
            ("the own copy", digest_of_copy),
            ("the invitation's app", invitation.app if invitation else ""),
        ):
            if digest and digest not in allowed:
                raise ConfigurationError(
                    f"allowed-apps lacks {digest}, the hash of {whose}: review it, and"
                    " put it there."
                )
        return f"allows {len(allowed)} app(s): {', '.join(app[:16] for app in allowed)}"

    def _gate(self) -> str:
        """Whether the app behind the gate can be run as is stated."""
        gate, rules = self.options.gate, self.rules
        assert gate is not None
        if not gate.confined:
            raise NoteError(
                f"the app {gate.app[:16]} may reach networks and files of this user:"
                " confine it by the container"
            )
        if not can_confine(existing(self.options.home)):
            raise ConfigurationError(
                "this system cannot confine an app's process (unshare, Landlock): allow"
                " that, or say confined = false in [gate] and confine the container."
            )
        for unit, units in (
            ("client", rules.allowed_units),
            ("distributed", rules.allowed_trust),
        ):
            if units and unit not in units:
                raise ConfigurationError(
                    f"{self.options.policy} does not allow {unit!r}, as every run of an"
                    " app behind the gate is: add it."
                )
        return (
            f"behind it runs {gate.app[:16]}, at most epsilon"
            f" {gate.epsilon_per_round:g} for a round at delta"
            f" {gate.delta_per_round:g}; {gate.size} numbers leave"
        )

    def _flower(self) -> str:
        flower = _private.flower_version()
        missing = [
            *_private.missing_app_seams(_private.CLIENT_APP),
            *_private.missing_node_seams(),
        ]
        if missing:
            raise ConfigurationError(
                f"Flower {flower} has no {missing[0]} for the guard: pip install"
                f" 'flwr=={_private.TRIED[0]}.0'."
            )
        require_tried_flower(allow_untested=self.options.allow_untested_flower)
        return (
            f"the guard stands before the installation of apps of Flower {flower}; a"
            " SuperLink names none"
        )

    def _port(self) -> str:
        process = None if self.starting else running(self.options)
        if process is not None:
            return (
                f"{self.options.host}:{self.options.port} is this node's, which runs"
                f" already as process {process}"
            )
        return require_free(self.options.host, self.options.port)

    def require_invited(self) -> None:
        """Refuse another SuperLink than that of the invitation.

        People compare its fingerprint.
        """
        options, invited = self.options, self.invitation
        # None: those of the system.
        authority = options.root_certificates and options.root_certificates.read_text()
        with suppress(ValueError):
            authority = authority and plain_certificates(authority)
        if invited and (options.superlink, authority or invited.certificate) != (
            invited.superlink,
            invited.certificate,
        ):
            raise ConfigurationError(
                f"superlink {options.superlink} or root-certificates are not those of"
                f" {options.invitation}, which may have come in two versions: ask its"
                " owner by telephone which one holds, and correct the other."
            )

    def _connection(self) -> str:
        options = self.options
        self.require_invited()
        if not is_this_machine(options.host):
            raise ConfigurationError(
                f"host is {options.host!r}, where others reach this node's tasks: give"
                " 127.0.0.1."
            )
        if options.insecure:
            if not is_this_machine(options.superlink.rpartition(":")[0].strip("[]")):
                raise ConfigurationError(
                    f"superlink is {options.superlink!r} without TLS: leave 'insecure'"
                    " out."
                )
            raise NoteError(
                "no TLS and no authentication, with a SuperLink on this machine"
            )
        if options.root_certificates:
            require_unchangeable(options.root_certificates)
            for certificate in x509.load_pem_x509_certificates(
                options.root_certificates.read_bytes()
            ):
                require_days(
                    str(options.root_certificates),
                    certificate.not_valid_before_utc,
                    certificate.not_valid_after_utc,
                )
        if not options.key:
            raise NoteError(
                "no key: whoever reaches the SuperLink can be a node, unless it takes"
                " known keys only"
            )
        require_secret(options.key)
        self._require_invited_key(options.key)
        return f"TLS to {options.superlink}, authenticated by {options.key}"

    def _require_invited_key(self, path: Path) -> None:
        """Refuse another key than this party's in the invitation.

        Of two folders that were mixed up, one may know the other's ledger.
        """
        key = private_key(path).public_key()
        name, invitation = self.options.name, self.invitation
        if invitation is None or name not in invitation.parties:
            return
        invited = invitation.parties[name].key
        if invited is None or key_fingerprint(invited) == key_fingerprint(key):
            return
        owners = [
            other
            for other, party in invitation.parties.items()
            if party.key and key_fingerprint(party.key) == key_fingerprint(key)
        ]
        whose = f", where it is that of {owners[0]}" if owners else ""
        raise ConfigurationError(
            f"{path} has the fingerprint {key_fingerprint(key)}, but {name} has"
            f" {key_fingerprint(invited)} in {self.options.invitation}{whose}: put this"
            " party's key back, or have the office take the new one into the"
            " invitation."
        )

    @cached_property
    def _answer_or_error(self) -> Answer | Exception:
        try:
            return ask(self.options)
        except (
            DPKMeansError,
            OSError,
            ValueError,
        ) as error:  # one that is silent is so for 30 s
            return error

    @property
    def answer(self) -> Answer:
        """What the SuperLink says."""
        if isinstance(self._answer_or_error, Exception):
            raise self._answer_or_error
        return self._answer_or_error

    def _superlink(self) -> str:
        address, key, answer = self.options.superlink, self.options.key, self.answer
        if abs(answer.ahead) > MOST_CLOCK_SECONDS:
            raise NoteError(f"{address} answers, and knows no key by this clock")
        if key and not answer.knows_key:
            raise ConfigurationError(
                f"{address} does not know the key {key}: have its operator register"
                f" {key}.pub."
            )
        if answer.certificate:
            require_days(f"the certificate of {address}", *answer.certificate)
        return f"{address} answers" + (
            ", with a certificate that holds" if answer.certificate else ""
        )

    def _online(self) -> str:
        """Two nodes of one key would share what one of them is asked for."""
        options = self.options
        if options.key is None:
            return "not looked at: this node has no key of its own"
        try:
            is_online = self.answer.is_online
        except (DPKMeansError, OSError, ValueError):  # which `superlink` says
            raise NoteError("not known without an answer of the SuperLink") from None
        process = None if self.starting else running(options)
        if process is not None:
            return f"process {process} of this machine is this node"
        if not is_online:
            return f"no other node uses the key {options.key}"
        if self.patient:
            raise NoteError(_private.ONLINE_ALREADY)
        raise ConfigurationError(f"{_private.ONLINE_ALREADY}.")

    def _clock(self) -> str:
        allowed = "which refuses nodes whose clock is 5 s ahead, or 305 s behind"
        try:
            ahead = self.answer.ahead
        except (DPKMeansError, OSError, ValueError):  # which `superlink` says
            raise NoteError(
                f"not known without an answer of the SuperLink, {allowed}"
            ) from None
        if abs(ahead) > MOST_CLOCK_SECONDS:
            side = (
                f"at least {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'}"
            )
            raise ConfigurationError(
                f"it is {side} that of the SuperLink, {allowed}: set it, such as by"
                " NTP."
            )
        return (
            f"it is within {MOST_CLOCK_SECONDS:g} s of the SuperLink's, to the second"
            " that an answer's date tells"
        )

    def _answers(self) -> str:
        """Never wrong: a node that is started again answers again."""
        message = LastMessage.of(self.options.home)
        if message.problem:
            raise NoteError(message.problem)
        if message.answered is None:
            return "no message has been answered yet"
        return f"the last message was answered at {utc(message.answered)}"

    @cached_property
    def rules(self) -> ClientPolicy:
        """Its policy."""
        rules = ClientPolicy.from_toml(self.options.policy, base=DEPLOYED)
        return (
            summed_elsewhere(rules) if is_clustered(self.options.data_path) else rules
        )

    @cached_property
    def invitation(self) -> Invitation | None:
        """What goes around.

        a file that lay on a shared disk is not needed once its identities are pinned.
        """
        path = self.options.invitation
        return Invitation.from_toml(path) if path and path.exists() else None

    def _policy(self) -> str:
        require_unchangeable(self.options.policy)
        rules, schema = self.rules, self.schema
        rules.require_complete()
        rules.check_columns(
            [name for column in schema.columns for name in column.features]
            if schema
            else self.options.columns
        )
        if rules.allow_anything and math.inf in (
            rules.max_epsilon_per_run,
            rules.max_epsilon_total,
        ):
            raise NoteError(
                f"{self.options.policy} allows anything and leaves epsilon open"
            )
        return (
            f"at most epsilon {rules.max_epsilon_per_run:g} for a run,"
            f" {rules.max_epsilon_total:g} in all at delta {rules.total.delta:g}"
        )

    def _identity(self) -> str:
        """Whether key, invitation and policy agree.

        They say the same of this party and of the others.
        """
        own_key, policy = (
            Identity.load(self.options.identity).public_key.hex(),
            self.options.policy,
        )
        pins = self.rules.pinned_peers or ()
        pinned, invited = (
            {name or key: key for name, key in pins},
            self.invitation.pins if self.invitation else {},
        )
        keys_by_source = {
            "its key file": {self.options.name: own_key},
            "the invitation": invited,
            str(policy): pinned,
        }
        for (first_source, first), (second_source, second) in itertools.combinations(
            keys_by_source.items(), 2
        ):
            for name in [
                name for name in first if first[name] != second.get(name, first[name])
            ]:
                raise ConfigurationError(
                    f"{name} has the identity {first[name]} by {first_source}, but"
                    f" {second[name]} by {second_source}: ask its owner by telephone"
                    " which one holds, and correct the other."
                )
            _require_same_names(first, first_source, second, second_source)
        if not pins:
            raise NoteError(
                f"public key {own_key}; the policy pins nobody, so a server may invent"
                " parties: see node pin"
            )
        if lacking := [
            key for key in {own_key, *invited.values()} if key not in pinned.values()
        ]:
            raise ConfigurationError(
                f"{policy} does not pin {listed(lacking)}: add the parties' lines to"
                " [pinned-peers], or have those who left taken out of the invitation."
            )
        return f"public key {own_key}; pinned: {listed(pinned)}"

    def _run(self) -> str:
        """Whether the expected run would be let through.

        As stated, or by default with all that are pinned.
        """
        options, rules = self.options, self.rules
        stated = stated_run(options.run_config)
        assumed = {key.name: key.default for key in run_keys()} | {
            "num-clients": max(len(rules.pinned_peers or ()), rules.min_cohort),
            "cohort.min-clients": rules.min_cohort,
            "bounds": str(options.table_schema or "private"),
        }
        try:
            strategy = strategy_from_run_config({**assumed, **stated}, simulated=False)
            config = strategy.config
            plan = strategy.draft(config.n_clients or 0)
            ledger, identity = (
                FileLedger(options.ledger),
                Identity.load(options.identity),
            )
            guard = NodeGuard(
                NodeSettings(
                    rules,
                    ledger,
                    options.data_name,
                    identity=identity,
                ),
                plan.run_id,
                0,
                0,
                0.0,
            )
            guard.require_allowed(plan)
            guard.require_names(plan, plan.config.feature_names)
        except DPKMeansError as error:
            if stated:
                raise ConfigurationError(f"run-config: {error}") from error
            raise NoteError(
                f"a run with the app's defaults would be refused: {error}"
            ) from error
        return (
            f"epsilon {config.epsilon:g},"
            f" {'as run-config says' if stated else 'by default'}, would be allowed"
        )

    def _home(self) -> str:
        home, stated = self.options.home, os.environ.get("FLWR_HOME", "")
        if os.path.lexists(home):
            require_private(home)
        require_writable(home)
        if stated and Path(stated).absolute() != home:
            raise NoteError(
                f"FLWR_HOME is {stated!r}, but this node's home is {home}: unset it, or"
                " correct home"
            )
        return f"{home} is this user's alone"

    def _ledger(self) -> str:
        path, data_id, ledger = (
            self.options.ledger,
            self.options.data_name,
            FileLedger(self.options.ledger),
        )
        ledger.require_usable()
        for file in filter(Path.exists, (path, head_path(path), belonging_path(path))):
            require_unchangeable(file)
        require_unchangeable(path.parent)
        spent = {
            unit.value: ledger.past(data_id, unit.value).total[0]
            for unit in PrivacyUnit
        }
        says = "; ".join(
            f"epsilon {epsilon:g} per {unit}" for unit, epsilon in spent.items()
        )
        charged_runs = {entry.run_id.partition("/")[0] for entry in ledger.entries()}
        if lacking := sorted(
            {
                place.name.removeprefix("run-")
                for place in self.options.output.glob("run-*")
            }
            - charged_runs
        ):
            raise NoteError(
                f"{path} lacks {len(lacking)} run(s) that {self.options.output} has"
                f" results of, such as {lacking[0]}: put the newest copy of both files"
                " back, or charge these runs again, unless another ledger has them"
            )
        says = f"{path} can be charged; {data_id!r} has cost {says}"
        if last := unfinished(ledger, data_id):
            raise NoteError(f"{says}; {unfinished_sentence(last)}")
        return says

    @cached_property
    def schema(self) -> Schema | None:
        """That of all parties."""
        path, agreed = self.options.table_schema, self.options.schema_digest
        schema = None if path is None else Schema.load(path)
        if path and not agreed:
            require_unchangeable(path)
        if schema and agreed not in ("", schema.digest):
            raise ConfigurationError(
                f"{path} has the digest {schema.digest}, but schema-digest is {agreed}:"
                " put back the schema that was agreed on, or agree on this one."
            )
        return schema

    @cached_property
    def load(self) -> partial[Table]:
        """What reads rows as the node's app does."""
        options = self.options
        layout = Layout(
            options.columns,
            options.label_column,
            options.dialect,
            options.query,
            UnitColumns(
                person_column_of(options.person_column, self.schema),
                weight=weight_column_of(options.weight_column, self.schema),
            ),
        )
        return partial(load_stated, layout=layout, schema=self.schema)

    @cached_property
    def cluster(self) -> ClusterClient | None:
        """The cluster that has the rows, if one does."""
        path = self.options.data_path
        return ClusterClient(path, self.load) if is_clustered(path) else None

    @cached_property
    def table(self) -> Table:
        """The rows that are here: none of a cluster's, but its columns."""
        return self.cluster.table if self.cluster else self.load(self.options.data_path)

    def _data(self) -> str:
        options, table = self.options, self.table
        if options.data_file:
            require_secret(options.data_file)
        # A URL may hold a password.
        source = "the database" if options.query else options.data_path
        n_rows = self.cluster.count() if self.cluster else len(table.points)
        if not n_rows:
            raise ConfigurationError(
                f"{source} has no row with a finite number in each of"
                f" {', '.join(map(repr, table.names))}, so this node would give"
                " nothing: correct columns, header or the file."
            )
        width = len(table.names) or table.points.shape[1]
        return f"{source} has {width} columns to cluster by, and {n_rows} rows"

    @property
    def belonging(self) -> Belonging:
        """Knows the data again that the ledger was charged for."""
        options = self.options
        return Belonging(
            FileLedger(options.ledger),
            options.data_name,
            Identity.load(options.identity).public_key.hex(),
            grows=options.data_grows,
        )

    @property
    def row_facts(self) -> RowFacts | None:
        """By what the table is known again."""
        if self.cluster:
            return None
        return RowFacts.of(self.table.points, self.table.names)

    @property
    def belongs(self) -> Finding:
        """Whether the ledger was charged for these rows."""
        return finding_of("belonging", self._belonging)

    def _belonging(self) -> str:
        """Rows are read only where the ledger knows some.

        A renamed file is another data set to it, and would have its whole budget again.
        """
        belonging = self.belonging
        facts, is_known = None, belonging.is_known
        if is_known:
            try:
                facts = self.row_facts
            except (DPKMeansError, OSError, ValueError):  # which `data` says
                raise NoteError("not known while the data cannot be read") from None
        if problem := belonging.problem(facts):
            raise ConfigurationError(problem)
        if is_known:
            return f"{self.options.ledger} knows these rows, or has charged for none"
        return f"{self.options.ledger} does not know its rows yet: a run notes them"

    def _units(self) -> str:
        """Never wrong: what rows say must not decide whether a node takes part.

        And no number of them is told.
        """
        names, dialect, query = (
            self.options.columns,
            self.options.dialect,
            self.options.query,
        )
        if is_clustered(self.options.data_path):
            return "not looked at: a cluster has the rows"
        pairs = self.rules.allowed_bounds or ()
        stated = zip(
            names, pairs * (len(names) if len(pairs) == 1 else 1), strict=False
        )
        columns = {name: {"kind": "number", "bounds": pair} for name, pair in stated}
        if not (
            schema := self.schema or (Schema(columns=columns) if columns else None)
        ):
            return (
                "not known: neither a schema nor the policy's allowed-bounds says what"
                " the columns lie between"
            )
        layout = Layout(
            () if self.options.header else names, dialect=dialect, query=query
        )
        seen, _ = look_by_schema(self.options.data_path, schema, layout)
        foreign = [column.name for column in seen if column.looks_foreign]
        if foreign:
            raise NoteError(
                f"over {MOST_OUTSIDE:.0%} of {listed(foreign)} lie outside their"
                " bounds: another unit?"
            )
        return (
            f"at most {MOST_OUTSIDE:.0%} of each column lie outside the stated bounds"
        )

    def _output(self) -> str:
        options = self.options
        log = LogOptions.of(options.node_config, may_write=True).file
        if options.output.exists():
            require_secret(options.output)
        if log and (
            log.is_dir() or not (log.parent.is_dir() and os.access(log.parent, os.W_OK))
        ):
            raise ConfigurationError(
                f"log-file is {log}, where this user cannot make a file: correct the"
                " path."
            )
        if options.cache not in ("", "no"):
            require_writable(Path(options.cache).expanduser())
        return require_writable(options.output)

    def _disk(self) -> str:
        return require_room(
            self.options.ledger.parent, self.options.output, self.options.home
        )

    def _limits(self) -> str:
        require_programs_run(self.options.home)
        require_temporary_folder()
        return require_limits()

    def _pace(self) -> str:
        """Never wrong: another hour has another load."""
        if _SECONDS_TO_IMPORT is None:
            return "not known: the system does not tell when a process began"
        advised = advised_timeout(_SECONDS_TO_IMPORT)
        return (
            f"a program needs {_SECONDS_TO_IMPORT:.1f} s to start here, as for each"
            f" message: the server's round-timeout should be at least {advised:.0f}"
        )

    def _user(self) -> str:
        """Which of the two lines of defence holds.

        The guard alone, or the system's users as well.
        """
        key = self.options.key
        if os.geteuid() == 0:
            raise NoteError(
                "this is root, so an approved app may do anything: run apps as a user"
                " of their own"
            )
        fixed = (
            self.path,
            self.options.policy,
            Path(__file__),
            Path(sys.executable).resolve(),
        )
        mine = [
            str(file)
            for file in fixed
            if os.access(file, os.W_OK) or file.stat().st_uid == os.geteuid()
        ]
        if mine:
            raise NoteError(
                f"apps run as a user who could change {', '.join(mine)}: the guard is"
                " the only defence"
            )
        if key and os.access(key, os.R_OK):
            raise NoteError(
                "apps can read the SuperNode's key, but not change policy or programs"
                " (see isolation)"
            )
        return (
            "apps can neither change policy or programs nor read a SuperNode's key;"
            " ledger and identity are theirs"
        )


def _require_same_names(
    first: Mapping[str, str],
    first_source: str,
    second: Mapping[str, str],
    second_source: str,
) -> None:
    """Refuse a party that two sources call by different names.

    A party without a name, or pinned by its key alone, is nobody's contradiction.
    """
    names = {key: name for name, key in second.items() if name not in ("", key)}
    for name, key in first.items():
        other = names.get(key, name)
        if name not in ("", key, other):
            raise ConfigurationError(
                f"the identity {key} is called {name} by {first_source}, but {other} by"
                f" {second_source}: ask by telephone which name holds, and correct the"
                " other."
            )
