"""``lo2io verify``: does a trace keep the rules that OTF2's readers rely on, and is the recording complete?

In: an OTF2 trace of any tool. Out: a :class:`Verification`. This room does not know how lo2io writes traces. It knows
what lo2io's tables mean, for they may lie beside a trace. It reads through the lowest level of the OTF2 library, since
higher levels fail on the very mistakes that verifying looks for.
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
