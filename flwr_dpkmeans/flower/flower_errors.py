"""What the error that Flower puts in the place of a reply means for the operator."""

from __future__ import annotations

from types import MappingProxyType

from flwr.app import Message

_SUPERLINK = 1
_MEANINGS = MappingProxyType(
    {
        1: "its SuperNode could not load the app, or its guard has not approved it",
        2: "its app failed before it could answer",
        3: "the message was no longer there",
        4: "its reply was not complete",
        5: "its SuperNode has given no sign of life for 60 s, or has left",
        7: "its SuperNode does not trust the app",
        8: "its app ended without a reply",
    }
)


def error_text(reply: Message) -> str:
    """Say who gave no reply and why; the text of an exception, which could hold anything, is left out.

    Parameters
    ----------
    reply : Message
        With an error. The SuperLink answers in place of a node that is gone, without saying which.

    Returns
    -------
    str
    """
    node, code = reply.metadata.src_node_id, reply.error.code
    who = "a node" if node == _SUPERLINK else f"node {node}"
    return f"{who} gave no reply: {_MEANINGS.get(code, 'look at its log')} (Flower's error code {code})"
