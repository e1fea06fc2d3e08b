"""Dask clusters by what people have of them: an address, a scheduler's file, or the cores of this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unspur._extras import require
from unspur._reading import brief, read_json
from unspur._version import __version__
from unspur.exceptions import InputError

#: Seconds to wait for a scheduler, and for its first worker.
CONNECT_SECONDS = 10.0


@contextmanager
def connected(where: str, *, patience: float = CONNECT_SECONDS, default: bool = True) -> Iterator[Any]:
    """A client of a cluster whose workers are there and have this version of unspur.

    Parameters
    ----------
    where : ``tcp://host:8786``, the file that a scheduler wrote (``--scheduler-file``), or "local" for a cluster of
        this machine's cores, which ends with the block.
    patience : seconds to wait for an answer and for the first worker.
    default : whether Dask sends its work to this cluster while the block lasts.
    """
    distributed = _distributed()
    if where == "local":
        with (
            distributed.LocalCluster(threads_per_worker=1, dashboard_address=":0") as cluster,
            distributed.Client(cluster, set_as_default=default) as client,
        ):
            yield client
        return
    with _client(distributed, where, patience, default) as client:
        _expect_workers(client, where, patience)
        _expect_this_version(client, where)
        yield client


def _distributed() -> Any:
    require("A Dask cluster needs", "dask", "distributed")
    import distributed

    return distributed


def _client(distributed: Any, where: str, patience: float, default: bool) -> Any:
    address: dict[str, str] = {"address": where}
    if Path(where).is_file():
        _require_address(where)
        address = {"scheduler_file": where}
    elif not re.fullmatch(r"(tcp|tls|ws|wss|ucx|inproc)://\S+", where):
        raise InputError(
            f"{where!r} is no address of a Dask scheduler; pass what it prints, such as tcp://host:8786, or the file "
            "that it wrote (dask scheduler --scheduler-file)."
        )
    try:
        return distributed.Client(**address, timeout=patience, set_as_default=default)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"No Dask scheduler answers at {where} ({error}). Start one with `dask scheduler`, and pass the address "
            "it prints (tcp://host:port)."
        ) from error


def _require_address(file: str) -> None:
    """A file that a scheduler wrote has its address."""
    try:
        read_json(file, {"address": str})
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file} is not a file that a Dask scheduler wrote ({brief(error)}). Pass the one of dask scheduler "
            "--scheduler-file, or the address that it prints."
        ) from error


def _expect_workers(client: Any, where: str, patience: float) -> None:
    try:
        client.wait_for_workers(1, timeout=patience)
    except TimeoutError as error:
        raise InputError(
            f"The Dask scheduler at {where} has no workers after {patience:g} s. Start some with "
            f"{worker_command(where)}."
        ) from error


def worker_command(where: str) -> str:
    """What starts workers of a cluster."""
    place = where if "://" in where else f"--scheduler-file {where}"
    return f"`dask worker {place} --nworkers auto --nthreads 1`"


def _expect_this_version(client: Any, where: str) -> None:
    """The same code must run on both sides: statistics travel, and records carry the version of this process."""

    def version() -> str:  # inside a function it travels by value, to where unspur may be missing
        try:
            from unspur._version import __version__ as found
        except ImportError:
            return "none"
        return found

    versions = sorted(set(client.run(version).values()) | {__version__})
    if len(versions) > 1:
        raise InputError(
            f"The workers of {where} and this process have different versions of unspur: {', '.join(versions)}. "
            "Install the same everywhere."
        )
