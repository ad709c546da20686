"""How a vLLM server is told to take weights from a folder that it sees."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from selfdistill_cli.core.errors import ConfigError, ServerError
from selfdistill_cli.rollout.server_client import InferenceServer, Refused


def load_adapter(
    server: InferenceServer, name: str, earlier: str, base: str, folder: Path
) -> None:
    """Let a server load the adapters in a folder under a name, and forget the earlier ones."""
    body = {"lora_name": name, "lora_path": str(folder.resolve())}
    try:
        server.post("/v1/load_lora_adapter", body)
    except Refused as error:
        if error.status == 400 and "already been loaded" in str(error):
            pass  # the first answer was lost on its way
        else:
            raise ServerError(
                f"{error}. Start the server with --enable-lora, --max-lora-rank of at least "
                "policy.lora.rank, and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment "
                "(launch/vllm/serve.sh does); it must see rollout.sync_folder"
            ) from error
    if earlier != base:
        try:
            server.post("/v1/unload_lora_adapter", {"lora_name": earlier})
        except Refused as error:
            if error.status != 404:  # a server that was started again has forgotten it
                raise


def load_model(server: InferenceServer, folder: Path) -> None:
    """Let a server load a folder's weights in place of its own, and forget what it cached."""
    body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder.resolve())}}
    try:
        server.post("/collective_rpc", body)
        server.post("/reset_prefix_cache", {})
    except Refused as error:
        raise ServerError(
            f"{error}. To take all weights the server needs VLLM_SERVER_DEV_MODE=1 in its "
            "environment (launch/vllm/serve.sh sets it), and must see rollout.sync_folder"
        ) from error


def check_local(servers: Sequence[InferenceServer]) -> None:
    """Raise ConfigError unless all servers are on this machine."""
    for server in servers:
        host = urlsplit(server.url).hostname or ""
        try:
            local = ipaddress.ip_address(host).is_loopback
        except ValueError:
            local = host == "localhost"
        if not local:
            raise ConfigError(
                f"rollout.sync_folder: got null, which means a folder in this machine's memory, "
                f"but {server.setting}={server.url} is another machine; give a folder that both see"
            )
