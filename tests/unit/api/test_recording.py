"""A recording that Python controls ends once, and says what lo2io said if there is no trace."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from lo2io.api.recording import Recording
from lo2io.errors import CaptureError
from lo2io.trace.names import ANCHOR

if TYPE_CHECKING:
    from pathlib import Path


def begun(trace: Path, said: str | None = "whole", code: int = 3) -> tuple[Recording, Mock]:
    """A recording, and the process that it controls."""
    process = Mock(returncode=code)
    process.communicate.return_value = (None, said)
    return Recording(process, trace), process


def test_a_recording_ends_once(tmp_path: Path) -> None:
    """By one signal, and lo2io's exit code and words are known."""
    (tmp_path / ANCHOR).touch()
    recording, process = begun(tmp_path)
    with recording:
        assert recording.exit_code is None
    recording.stop()
    process.send_signal.assert_called_once_with(signal.SIGINT)
    assert (recording.exit_code, recording.messages) == (3, "whole")


@pytest.mark.parametrize(("said", "answer"), [(" no disk\n", "no disk"), (None, "lo2io ended with 3")])
def test_without_a_trace_there_is_an_error(tmp_path: Path, said: str | None, answer: str) -> None:
    """It has lo2io's own words, if there are any. A process that has ended already gets no signal."""
    recording, process = begun(tmp_path, said)
    process.send_signal.side_effect = ProcessLookupError
    with pytest.raises(CaptureError) as caught:
        recording.stop()
    assert caught.value.answer == answer
