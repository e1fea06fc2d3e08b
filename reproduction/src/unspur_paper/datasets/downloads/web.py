"""Requests to the web and nowhere else."""

from __future__ import annotations

import http.client
import re
import ssl
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from unspur._version import __version__
from unspur.exceptions import InputError
from unspur_paper.datasets.downloads.errors import DownloadError

_TIMEOUT = 60  # seconds without a byte
_LATER = {408, 425, 429}  # and 500 up: the server may do better in a moment


class InterruptedTransfer(Exception):  # noqa: N818 — not an error yet: it is tried again
    """The transfer ended early for a reason that may pass."""


def check_url(url: str) -> None:
    """Raise `InputError` unless `url` is a plain web address."""
    try:
        address = urlsplit(url)
        web = address.scheme in ("http", "https") and bool(address.hostname)
        address.port  # noqa: B018 — raises if it is no number
    except ValueError:
        web = False
    if not web:
        raise InputError(f"{url!r} is not a web address; it must begin with https:// or http:// and name a host.")
    if "@" in address.netloc:
        raise InputError(
            f"The address of {address.hostname} holds a user name, which would be written to disk; leave it out."
        )
    if not re.fullmatch(r"[!-~]+", url):
        raise InputError(f"{url!r} holds a blank or a special character; write it as %20 and the like.")


class _WebOnly(urllib.request.HTTPRedirectHandler):
    """Follow a redirection only to another web address."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if urlsplit(newurl).scheme not in ("http", "https"):
            fp.close()
            raise DownloadError(
                f"{req.full_url} sends on to {newurl!r}, which is not a web address. Nothing was fetched."
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_opener = urllib.request.build_opener(_WebOnly)


def ask(url: str, headers: dict[str, str]) -> http.client.HTTPResponse:
    """The answer to a GET, its body not yet read; 416 comes as `HTTPError`, what may pass as `InterruptedTransfer`."""
    # Some hosts refuse Python's own name; a compressed body would not have the published checksum.
    standard = {"User-Agent": f"unspur/{__version__}", "Accept-Encoding": "identity"}
    try:
        response = _opener.open(urllib.request.Request(url, headers=standard | headers), timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            raise
        if error.code in _LATER or error.code >= 500:
            raise InterruptedTransfer(f"the server answered {error.code} {error.reason}") from error
        if 300 <= error.code < 400:
            raise DownloadError(
                f"{url} sends on to {error.url!r}, which is not followed. Nothing was fetched."
            ) from error
        raise DownloadError(
            f"{url} answered {error.code} {error.reason}. The file may have moved: look on the page of the dataset "
            "(unspur-paper data --list), then pass its new address with --url, or a file downloaded by hand with "
            "--archive."
        ) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise DownloadError(f"{url} cannot prove who it is ({error.reason}). Nothing was fetched.") from error
        raise InterruptedTransfer(f"no connection: {error.reason}") from error
    except (http.client.HTTPException, OSError) as error:
        raise InterruptedTransfer(f"no answer: {error!r}") from error
    return response  # type: ignore[no-any-return]


def body(response: http.client.HTTPResponse, size: int) -> bytes:
    """The next bytes of a body, at most `size`; none at its end, early or not."""
    try:
        return response.read(size)
    except http.client.IncompleteRead as error:
        if error.partial:
            return error.partial  # the next call finds the connection closed
        raise InterruptedTransfer("the connection ended early") from error
    except (http.client.HTTPException, OSError) as error:
        raise InterruptedTransfer(f"the connection broke: {error!r}") from error
