"""`%%lo2io` in a notebook: the example of the documentation, run from its first cell to its last."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

pytestmark = pytest.mark.requires("root", "tracefs", "events")

EXAMPLE = Path(__file__).parents[2] / "docs/how-to/notebook.ipynb"
FAILS = nbformat.v4.new_code_cell("%%lo2io -o failed\nraise KeyError('on purpose')")
REFUSED = nbformat.v4.new_code_cell("%%lo2io --nonsense\nopen('ran', 'w')")


def run(notebook: Any, place: Path) -> Any:
    """Run all cells, in this folder."""
    environ = {name: os.environ[name] for name in ("JUPYTER_PLATFORM_DIRS", "IPYTHONDIR") if name in os.environ}
    os.environ.update({"JUPYTER_PLATFORM_DIRS": "1", "IPYTHONDIR": str(place / "ipython")})
    try:
        client = nbclient.NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(place)}})
        return client.execute()
    finally:
        for name in ("JUPYTER_PLATFORM_DIRS", "IPYTHONDIR"):
            os.environ.pop(name)
        os.environ.update(environ)


@pytest.mark.filterwarnings("ignore")  # those of Jupyter's packages
def test_example(tmp_path: Path) -> None:
    """The first program has 200 syncs, which are found; the second has one. The page stands below both.

    And below a cell that fails. A cell whose options are refused does not run.
    """
    notebook = nbformat.read(EXAMPLE, as_version=4)
    for cell in (FAILS, REFUSED):
        cell.metadata["tags"] = ["raises-exception"]
        notebook.cells.append(cell)
    _, each, found, table, once, syncs, failed, refused = (
        cell.outputs for cell in run(notebook, tmp_path).cells if cell.cell_type == "code"
    )
    for outputs in (each, once, failed):
        (shown,) = (output for output in outputs if output.output_type == "display_data")
        assert shown.data["text/html"].startswith('<iframe title="lo2io report" sandbox=')
        assert "process mode" in shown.data["text/plain"]
        assert "captured" in shown.data["text/plain"]  # all events, or how much: block events may be missing
    assert f"{tmp_path}/records" in each[0].data["text/plain"]
    assert found[0].text.splitlines()[0] == f"{tmp_path}/records"
    assert found[0].text.splitlines()[1].startswith("200 syncs for 200 writes")
    assert [line.split()[:2] for line in table[0].data["text/plain"].splitlines()[2:]] == [
        ["close", "1"],
        ["fdatasync", "200"],
        ["openat", "1"],
        ["write", "200"],
    ]
    assert syncs[0].text == "200 → 1\n"
    assert {output.ename for output in failed if output.output_type == "error"} == {"KeyError"}
    assert [output.ename for output in refused if output.output_type == "error"] == ["CaptureError"]
    assert not (tmp_path / "ran").exists()
