"""``lo2io verify``: is this trace what OTF2's readers expect, and is the recording complete?

In: any OTF2 trace, whoever wrote it. Out: a :class:`Verification`. Nothing here knows how lo2io writes traces; of its
tables, which may lie beside one, it knows what they mean. It reads through the lowest level of the OTF2 library, since
higher ones stumble over what is to be found.
"""

from lo2io.verify.completeness import read_completeness, read_reconciliation
from lo2io.verify.render import exit_code, render
from lo2io.verify.rules import RULES, Counts, Finding, Rule, Severity, Verification
from lo2io.verify.trace import verify

__all__ = [
    "RULES",
    "Counts",
    "Finding",
    "Rule",
    "Severity",
    "Verification",
    "exit_code",
    "read_completeness",
    "read_reconciliation",
    "render",
    "verify",
]
