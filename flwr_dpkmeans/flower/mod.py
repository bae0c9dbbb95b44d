"""The secure-aggregation mod.

It stands between Flower and the NumPyClient, so that no exact statistic leaves the
node: a message that is not of the protocol never reaches the wrapped client, which
would answer it without masks.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from flwr.app import Context, Message

from flwr_dpkmeans import errors
from flwr_dpkmeans.errors import DataError, DPKMeansError, ProtocolError
from flwr_dpkmeans.flower.client.cached_rows import stored_rows_of
from flwr_dpkmeans.flower.client.node_config import (
    node_settings,
    show_node_logs,
    stream_number,
)
from flwr_dpkmeans.flower.client.wrapped import NextCall, Wrapped
from flwr_dpkmeans.flower.messages.client_memory import recall, remember
from flwr_dpkmeans.flower.messages.message_records import RECORD, content_of, packet_of
from flwr_dpkmeans.flower.messages.message_sizes import log_size
from flwr_dpkmeans.log import Place, event, placed, printable, where_raised
from flwr_dpkmeans.node.guard import NodeGuard
from flwr_dpkmeans.node.node_log import log_failure
from flwr_dpkmeans.node.node_log import logger as node_logger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.sums.client import Client
from flwr_dpkmeans.sums.wire import (
    Failure,
    Packet,
    Status,
    decode_request,
    encode_failure,
    encode_reply,
)

INTERNAL_SENTENCE = (
    "this client could not answer (the reason is in its own log): look there, then"
    " start a new run."
)

TABLE_SENTENCE = (
    "this client's table cannot be read as its configuration says (its own log says"
    " why): correct it there, then start a new run."
)


def warn_without_app_guard() -> None:
    """Warn where Flower's own program runs this app.

    The app guard (`flwr_dpkmeans.deploy.guard`) runs it under another name.
    """
    if Path(sys.argv[0]).name == "flwr-clientapp":
        node_logger.warning(
            "this node has no guard and runs whatever app the SuperLink sends: start it"
            " by 'python -m flwr_dpkmeans node start NODE.toml'",
            extra=event("unguarded"),
        )


class SecureAggregation:
    """A Flower mod; `secure_aggregation_mod` is the instance with the default settings.

    Parameters
    ----------
    settings : callable, optional
        ``settings(context) -> NodeSettings``; by default read from the node's
        configuration.
    show_logs : callable, optional
        ``show_logs(context)`` is called first, to show this node's log; left out, the
        program's own logging does.
    wrapped : class
        What is behind it: `Wrapped`, a `KMeansClient`, or `WrappedApp`, an app of
        anybody's.

    Notes
    -----
    Exceptions never reach Flower, which would send their text to the server: the reply
    carries a fixed code and a sentence of public values, and the detail stays in the
    client's log.
    """

    def __init__(
        self,
        settings: Callable[[Context], NodeSettings] = node_settings,
        *,
        show_logs: Callable[[Context], None] | None = None,
        wrapped: type[Wrapped] | None = None,
    ) -> None:
        self.wrapped_class = Wrapped if wrapped is None else wrapped
        self._settings = settings
        self._show_logs = show_logs

    def __call__(
        self,
        message: Message,
        context: Context,
        call_next: NextCall,
    ) -> Message:
        """Answer a message of the protocol; anything else is refused."""
        return self.answer(
            message,
            context,
            partial(self.wrapped_class, message, context, call_next),
        )

    def answer(
        self,
        message: Message,
        context: Context,
        wrap: Callable[[NodeGuard], Wrapped],
    ) -> Message:
        """Answer a message; ``wrap(guard)`` makes what computes the statistic."""
        with placed(Place(run=context.run_id, node=context.node_id)):
            packet = self._answer_or_failure(message, context, wrap)
            return Message(content_of(packet), reply_to=message)

    def _answer_or_failure(
        self,
        message: Message,
        context: Context,
        wrap: Callable[[NodeGuard], Wrapped],
    ) -> Packet:
        """Answer, and turn what goes wrong into a fixed code."""
        try:
            if self._show_logs is not None:
                self._show_logs(context)
            return self._answer(message, context, wrap)
        except errors.PeerError as error:
            node_logger.warning(
                "refused: %s",
                printable(error),
                extra=event("refused", kind=type(error).__name__),
            )
            return encode_failure(
                Failure(Status.REFUSED, type(error).__name__, str(error))
            )
        except DPKMeansError as error:
            # The sentence may describe local data, so only its kind travels.
            log_failure(error)
            sentence = INTERNAL_SENTENCE
            if isinstance(error, errors.ColumnError):
                sentence = error.public
            elif isinstance(error, DataError):
                sentence = TABLE_SENTENCE
            return encode_failure(
                Failure(Status.FAILED, type(error).__name__, sentence)
            )
        except Exception as error:
            # Its text may hold rows, so only its kind and place are told.
            place = where_raised(error, verbose=node_logger.isEnabledFor(logging.DEBUG))
            node_logger.error(
                "cannot answer: %s",
                place,
                extra=event("crashed", kind=type(error).__name__),
            )
            return encode_failure(
                Failure(Status.FAILED, "InternalError", INTERNAL_SENTENCE)
            )

    def _answer(
        self,
        message: Message,
        context: Context,
        wrap: Callable[[NodeGuard], Wrapped],
    ) -> Packet:
        """Answer a message of the protocol; raise for any other.

        What the client remembers of the run changes only when the whole transition has
        succeeded. Apart from it the context has a record of the table's files, which is
        for a warning and changes whenever the table is read (`say_if_changed`).
        """
        if not message.has_content() or RECORD not in message.content:
            raise ProtocolError(
                "a message that is not of the private k-means protocol came, and the"
                " client behind the secure-aggregation mod answers no other: send it to"
                " a function without this mod."
            )
        log_size(node_logger, "received", [message])
        request = decode_request(packet_of(message.content))
        if request.stage is Stage.KEYS:
            warn_without_app_guard()
        settings = self._settings(context)
        guard = NodeGuard(
            settings,
            context.run_id,
            context.node_id,
            stream=stream_number(context),
            created=message.metadata.created_at,
        )
        memory = recall(context)
        guard.name_peers(memory)
        client = Client(guard, wrap(guard), memory)
        memory, reply = client.handle(request)
        packet = encode_reply(request.stage, reply)
        if memory is not None:
            remember(context, memory)
        if request.stage is Stage.STOP:
            # No later message would delete them.
            stored_rows_of(context).forget()
        return packet


secure_aggregation_mod = SecureAggregation(show_logs=show_node_logs)
"""The mod with settings, and a log, as the node's configuration says."""
