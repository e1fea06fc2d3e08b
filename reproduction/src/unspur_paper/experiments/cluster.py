"""A Dask cluster that computes cells: connect to it, once it has workers with this version of unspur."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unspur._extras import require
from unspur._version import __version__
from unspur.exceptions import InputError

#: Seconds to wait for a scheduler, and for its first worker.
CONNECT_SECONDS = 10.0


@contextmanager
def connected(where: str) -> Iterator[Any]:
    """A client of the cluster at ``tcp://host:8786``, or of a scheduler's file; "local" starts one on these cores."""
    require("A Dask cluster needs", "dask", "distributed")
    import distributed

    if where == "local":
        with (
            distributed.LocalCluster(threads_per_worker=1, dashboard_address=":0") as cluster,
            distributed.Client(cluster, set_as_default=False) as client,
        ):
            yield client
        return
    is_file = Path(where).is_file()
    if not is_file and not re.fullmatch(r"(tcp|tls|ws|wss|ucx|inproc)://\S+", where):
        raise InputError(f"{where!r} is not the address of a Dask scheduler, such as tcp://host:8786, or its file.")
    address = {"scheduler_file" if is_file else "address": where}
    try:
        client = distributed.Client(**address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"No Dask scheduler answers at {where} ({error}). Start one with `dask scheduler`.") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError as error:
            raise InputError(
                f"The Dask scheduler at {where} has no workers after {CONNECT_SECONDS:g} s. Start some with "
                f"{worker_command(where)}."
            ) from error
        _expect_this_version(client, where)
        yield client


def worker_command(where: str) -> str:
    """The command that starts workers of a cluster."""
    place = where if "://" in where else f"--scheduler-file {where}"
    return f"`dask worker {place} --nworkers auto --nthreads 1`"


def _expect_this_version(client: Any, where: str) -> None:
    """Raise InputError unless all workers have this version: cells are sent to them as code."""

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
