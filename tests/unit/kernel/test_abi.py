"""The numbers of perf_event_open(2) are those of the kernel's header."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lo2io.kernel import abi

HEADER = Path("/usr/include/linux/perf_event.h")
FLAGS = (
    *("disabled", "inherit", "exclude_kernel", "exclude_hv", "mmap", "comm", "task", "watermark", "sample_id_all"),
    *("mmap2", "comm_exec", "use_clockid", "build_id"),
)


@pytest.mark.skipif(not HEADER.exists(), reason="the kernel's headers are not installed")
def test_each_flag_has_the_place_of_its_bit_field() -> None:
    """Bit fields lie in the order of the header, from the lowest bit on."""
    fields = HEADER.read_text().split("struct perf_event_attr {")[1].split("__reserved_1")[0]
    places, place = {}, 0
    for name, width in re.findall(r"(\w+)\s*:\s*(\d+)", re.sub(r"/\*.*?\*/", "", fields, flags=re.DOTALL)):
        places[name] = place
        place += int(width)
    assert {name: getattr(abi, name.upper()) for name in FLAGS} == {name: 1 << places[name] for name in FLAGS}
