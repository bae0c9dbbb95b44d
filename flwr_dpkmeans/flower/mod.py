"""The secure-aggregation mod: between Flower and the NumPyClient, so that no exact statistic leaves the node.

It decodes a message, has `flwr_dpkmeans.sums.client.Client` handle it, keeps what is to be remembered and encodes the
reply. A message that is not of the protocol never reaches the wrapped client, which would answer it without masks.
"""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import Context, Message

from flwr_dpkmeans.errors import DataError, DPKMeansError, PeerError, ProtocolError
from flwr_dpkmeans.flower.inner import NextCall, Wrapped
from flwr_dpkmeans.flower.node import look_for_guard, node_settings, show_node_logs, stream_number
from flwr_dpkmeans.flower.records import RECORD, content_of, debug_size, packet_of, recall, remember
from flwr_dpkmeans.log import Place, placed
from flwr_dpkmeans.node import client_log
from flwr_dpkmeans.node.guard import NodeGuard
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.sums.client import Client
from flwr_dpkmeans.sums.wire import Failure, Packet, Status, decode_request, encode_failure, encode_reply

INTERNAL_SENTENCE = "this client could not answer (the reason is in its own log): look there, then start a new run."
TABLE_SENTENCE = (
    "this client's table cannot be read as its configuration says (its own log says why): correct it there, then start "
    "a new run."
)


class SecureAggregation:
    """A Flower mod; `secure_aggregation_mod` is the instance with the default settings.

    Parameters
    ----------
    settings : callable, optional
        ``settings(context) -> NodeSettings``; by default read from the node's configuration.
    show_logs : callable, optional
        ``show_logs(context)`` is called first, to show this node's log; left out, the program's own logging does.

    Notes
    -----
    Exceptions never reach Flower, which would send their text to the server: the reply carries a fixed code and a
    sentence of public values, and the detail stays in the client's log.
    """

    def __init__(
        self,
        settings: Callable[[Context], NodeSettings] = node_settings,
        *,
        show_logs: Callable[[Context], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._show_logs = show_logs

    def __call__(self, message: Message, context: Context, call_next: NextCall) -> Message:
        """Answer a message of the protocol; anything else is refused."""
        with placed(Place(run=context.run_id, node=context.node_id)):
            return Message(content_of(self._guarded(message, context, call_next)), reply_to=message)

    def _guarded(self, message: Message, context: Context, call_next: NextCall) -> Packet:
        """Answer, and turn what goes wrong into a fixed code."""
        try:
            self._show_logs(context)
            return self._answer(message, context, call_next)
        except PeerError as error:
            client_log.refused(error)
            return encode_failure(Failure(Status.REFUSED, type(error).__name__, str(error)))
        except DPKMeansError as error:
            # The sentence may describe local data, so only its kind travels.
            client_log.failed(error)
            sentence = TABLE_SENTENCE if isinstance(error, DataError) else INTERNAL_SENTENCE
            return encode_failure(Failure(Status.FAILED, type(error).__name__, sentence))
        except Exception as error:
            client_log.crashed(error)
            return encode_failure(Failure(Status.FAILED, "InternalError", INTERNAL_SENTENCE))

    def _answer(self, message: Message, context: Context, call_next: NextCall) -> Packet:
        """The memory changes only when the whole transition has succeeded."""
        if not message.has_content() or RECORD not in message.content:
            raise ProtocolError(
                "a message that is not of the private k-means protocol came, and the client behind the "
                "secure-aggregation mod answers no other: send it to a function without this mod."
            )
        debug_size("received", message.content)
        request = decode_request(packet_of(message.content))
        if request.stage is Stage.KEYS:
            look_for_guard()
        settings = self._settings(context)
        guard = NodeGuard(
            settings, context.run_id, context.node_id, stream_number(context), message.metadata.created_at
        )
        memory, reply = Client(guard, Wrapped(message, context, call_next), recall(context)).handle(request)
        packet = encode_reply(request.stage, reply)
        remember(context, memory)
        return packet


secure_aggregation_mod = SecureAggregation(show_logs=show_node_logs)
"""The mod with settings, and a log, as the node's configuration says."""
