"""The socket of a flight recorder: requests for a dump in, their results out, one JSON object a line.

The socket lies in the spool, which belongs to the recorder alone. The kernel tells each side whose process is on the
other side. The recorder accepts requests of root and of its own user. A client trusts the spool's owner alone. No file
holds a pid to send a signal to: another process may have that pid by now.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from typing import TYPE_CHECKING

from lo2io.model.notices import Notice
from lo2io.spool.format import CONTROL_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from lo2io.folder import Folder

REQUEST = b"dump\n"
_PEER = struct.Struct("=iII")
"""struct ucred (include/linux/socket.h): pid, uid, gid."""
_REQUEST_S = 2.0
"""A client that connects and sends no request within this time is disconnected."""


def peer_uid(connection: socket.socket) -> int:
    """The user of the process on the other side, by the kernel."""
    _, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(uid)


def _line(event: str, name: str, text: str) -> bytes:
    return json.dumps({"event": event, "name": name, "text": text}).encode("ascii") + b"\n"


class Control:
    """Takes dump requests from :meth:`start` on, and sends all that is posted to the clients that were not refused.

    Args:
        spool: The directory that gets the socket.
        note: Called with a notice if the file system has no sockets, such as vfat.
    """

    def __init__(self, spool: Folder, note: Callable[[Notice], None]) -> None:
        self._spool = spool
        self._askers: list[socket.socket] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(str(spool.place / CONTROL_NAME))
            self._socket.listen()
        except OSError as error:
            self._socket.close()
            self._socket = None
            note(Notice(f"`lo2io dump` cannot ask this recording ({error.strerror} for a socket there); SIGUSR1 can"))

    def start(self, ask: Callable[[], tuple[str, str] | None]) -> None:
        """Call ``ask`` for each request, in a thread of its own.

        If it returns an event and a text, this client alone gets these, and is disconnected: the requests of others may
        be under way.
        """
        if self._socket is not None:
            thread = threading.Thread(target=self._serve, args=(self._socket, ask), name="lo2io-control", daemon=True)
            thread.start()
            self._thread = thread  # not before: the kernel may refuse it

    def post(self, event: str, name: str, text: str) -> None:
        """Send to every client. A client that does not read is dropped."""
        line = _line(event, name, text)
        with self._lock:
            for asker in list(self._askers):
                try:
                    asker.sendall(line)
                except OSError:
                    self._drop(asker)

    def close(self) -> None:
        """Take no more requests. Clients see that as the end of their connection."""
        listening, self._socket = self._socket, None
        if listening is None:
            return
        listening.shutdown(socket.SHUT_RDWR)  # ends the thread's accept
        if self._thread is not None:
            self._thread.join()
        listening.close()
        with self._lock:
            for asker in self._askers:
                asker.close()
            self._askers.clear()
        with contextlib.suppress(OSError):
            self._spool.remove(CONTROL_NAME)

    def _serve(self, listening: socket.socket, ask: Callable[[], tuple[str, str] | None]) -> None:
        with contextlib.suppress(OSError):  # the end
            while True:
                asker, _ = listening.accept()
                if self._is_request(asker):
                    asker.setblocking(False)
                    with self._lock:
                        self._askers.append(asker)  # before the request: its first event may come at once
                    if refusal := ask():
                        self._turn_away(asker, *refusal)
                else:
                    asker.close()

    def _turn_away(self, asker: socket.socket, event: str, text: str) -> None:
        with self._lock:
            if asker in self._askers:
                with contextlib.suppress(OSError):
                    asker.sendall(_line(event, "", text))
                self._drop(asker)

    def _drop(self, asker: socket.socket) -> None:
        """Disconnect a client. The caller holds the lock."""
        self._askers.remove(asker)
        asker.close()

    @staticmethod
    def _is_request(asker: socket.socket) -> bool:
        asker.settimeout(_REQUEST_S)
        with contextlib.suppress(OSError):
            return peer_uid(asker) in {0, os.geteuid()} and asker.recv(len(REQUEST)) == REQUEST
        return False
