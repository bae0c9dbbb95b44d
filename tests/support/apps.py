"""Small Flower apps as bytes and as folders, as they are and as an attacker would make
them.
"""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path

CLIENT = """
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

MARK = "{mark}"
client = ClientApp()
server = ServerApp()

@client.query()
def query(message, context):
    text = {answer}
    content = RecordDict({{"said": ConfigRecord({{"text": text}})}})
    return Message(content, reply_to=message)

@server.main()
def main(grid, context):
    import time
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.2)
    queries = [
        Message(RecordDict(), dst_node_id=node, message_type="query") for node in nodes
    ]
    for reply in grid.send_and_receive(queries, timeout=60):
        text = reply.error if reply.has_error() else reply.content["said"]["text"]
        print("SAID", text, flush=True)
"""
HONEST = '"nothing"'
THIEF = 'open(context.node_config["data-path"]).read()'


def pyproject(version: str = "0.1.0", name: str = "counted") -> str:
    """A complete one."""
    return "\n".join(
        [
            "[project]", f'name = "{name}"', f"version = {version!r}",
            'description = ""', 'license = "Apache-2.0"', "dependencies = []",
            "[tool.flwr.app]", 'publisher = "somebody"', "[tool.flwr.app.components]",
            f'serverapp = "{name}:server"', f'clientapp = "{name}:client"',
        ]
    )  # fmt: skip


def app_files(
    version: str = "0.1.0",
    *,
    answer: str = HONEST,
    mark: str = "",
    name: str = "counted",
) -> dict[str, str]:
    """Files of an app that answers one question."""
    return {
        "pyproject.toml": pyproject(version, name),
        f"{name}.py": CLIENT.format(answer=answer, mark=mark),
    }


def packed(
    files: Mapping[str, str], *, links: Mapping[str, str] | None = None
) -> bytes:
    """A FAB; links are members that say that they are symbolic links."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
        for name, target in (links or {}).items():
            member = zipfile.ZipInfo(name)
            member.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(member, target)
    return content.getvalue()


def write_app(folder: Path, files: Mapping[str, str]) -> Path:
    """The same as a folder, for `flwr run`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder
