"""A real web server on this machine that misbehaves as told."""

import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Served:
    """One file on the web. `script` says how the next requests are answered; after it, all goes well.

    Steps: ``"drop:N"`` close after N bytes; ``"stall:N"`` wait for `go` after N bytes; ``"whole"`` ignore Range;
    ``"blind"`` honour Range whatever If-Range says; ``"lie:N"`` claim N bytes more; ``"open"`` give no length;
    ``"off:N"`` send a piece that begins N bytes late; ``"to:URL"`` redirect; a number is a status.
    """

    def __init__(self, content):
        self.content = content
        self.headers = {"ETag": '"one"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
        self.script = []
        self.asked = []
        self.go = threading.Event()
        self.url = ""

    def answer(self, handler):
        self.asked.append(dict(handler.headers))
        verb, _, value = str(self.script.pop(0) if self.script else "good").partition(":")
        if verb.isdigit():
            return handler.send_error(int(verb))
        if verb == "to":
            handler.send_response(302)
            handler.send_header("Location", value)
            return handler.end_headers()
        start = self.start(handler, verb)
        if start is None:
            return handler.send_error(416)
        start += int(value) if verb == "off" else 0
        body = self.content[start:]
        handler.send_response(206 if start else 200)
        if verb != "open":
            handler.send_header("Content-Length", str(len(body) + (int(value) if verb == "lie" else 0)))
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        for name, text in self.headers.items():
            handler.send_header(name, text)
        handler.end_headers()
        handler.wfile.write(body[: int(value)] if verb in ("drop", "stall") else body)
        if verb == "stall":
            handler.wfile.flush()
            self.go.wait(60)
        return None

    def start(self, handler, verb):
        """First byte to send, or None if there is no such byte."""
        asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        same = handler.headers.get("If-Range") in self.headers.values() or verb == "blind"
        if not asked or not same or verb == "whole":
            return 0
        return int(asked[1]) if int(asked[1]) < len(self.content) else None


@contextmanager
def serving(content):
    served = Served(content)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            served.answer(self)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}/file.tar.gz"
    try:
        yield served
    finally:
        served.go.set()
        server.shutdown()
        thread.join()
        server.server_close()
