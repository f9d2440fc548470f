"""`lo2io doctor` on many nodes: one table."""

from __future__ import annotations

import json

from lo2io.reports.doctor.nodes import render, to_json
from lo2io.reports.doctor.report import FAIL, OK, WARN, Check, Diagnosis

HOSTS = {
    host: Diagnosis(
        (
            Check("kernel", OK, f"Linux of {host}", "it is one"),
            Check("locked memory", WARN, "64 KiB", "buffers are small", "ulimit -l unlimited")
            if host in {"n1", "n2", "n3", "n4", "n5", "n6"}
            else Check("locked memory", OK, "8 MiB", "buffers are large"),
            *([Check("tracefs", FAIL, "none", "no event can be found", "mount it")] if host == "n7" else []),
        )
    )
    for host in ("n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7")
}


def test_what_hosts_share_stands_there_once() -> None:
    """Failures first, each with its hosts and its remedy; a check that is ok says what the first host found."""
    assert render(HOSTS).splitlines() == [
        "fail  tracefs        n7                         none",
        "                                                no event can be found",
        "                                                → mount it",
        "warn  locked memory  n1, n2, n3, n4 and 2 more  64 KiB",
        "                                                buffers are small",
        "                                                → ulimit -l unlimited",
        "ok    kernel         all 8                      Linux of n0",
        "ok    locked memory  n0, n7                     8 MiB",
        "",
        "lo2io record cannot work, for this user, on 1 of 8 hosts: n7",
    ]
    healthy = {host: HOSTS[host] for host in ("n0", "n1")}
    assert render(healthy).splitlines()[-1] == "lo2io record works on all 2 hosts"


def test_json_has_all_checks_of_each_host() -> None:
    """And says whether all can record."""
    told = json.loads(to_json(HOSTS))
    assert (told["can_record"], told["hosts"]["n0"]["can_record"], told["hosts"]["n7"]["can_record"]) == (
        *(False, True, False),
    )
    assert [check["name"] for check in told["hosts"]["n7"]["checks"]] == ["kernel", "locked memory", "tracefs"]
    assert json.loads(to_json({"n0": HOSTS["n0"]}))["can_record"]
