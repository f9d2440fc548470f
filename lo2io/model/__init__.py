"""The types between the stages.

The input and output of each stage are declared here, and nothing else: no stage imports another. Times are int64
nanoseconds on the spool's clock, unless a name says otherwise.
"""

from lo2io.model.filters import CallFilter
from lo2io.model.recording import Account, BlockDevice, ClockSync, Cpu, EventCounts, Mount, SpoolMeta, Usage
from lo2io.model.trace import (
    UNKNOWN_I64,
    UNKNOWN_U32,
    Batch,
    Columns,
    Completeness,
    EventCompleteness,
    Reconciliation,
    Totals,
    TraceEnd,
)
from lo2io.model.tracepoints import (
    CallClass,
    CallKind,
    CallSpec,
    CompatArgument,
    CompatCall,
    EventFormat,
    FieldLayout,
    IocbCommand,
    OpcodeSpec,
    OpcodeTrait,
    RequestOp,
    Returns,
    RingPath,
    RingStatus,
    Role,
    TracepointSpec,
)

__all__ = [
    "UNKNOWN_I64",
    "UNKNOWN_U32",
    "Account",
    "Batch",
    "BlockDevice",
    "CallClass",
    "CallFilter",
    "CallKind",
    "CallSpec",
    "ClockSync",
    "Columns",
    "CompatArgument",
    "CompatCall",
    "Completeness",
    "Cpu",
    "EventCompleteness",
    "EventCounts",
    "EventFormat",
    "FieldLayout",
    "IocbCommand",
    "Mount",
    "OpcodeSpec",
    "OpcodeTrait",
    "Reconciliation",
    "RequestOp",
    "Returns",
    "RingPath",
    "RingStatus",
    "Role",
    "SpoolMeta",
    "Totals",
    "TraceEnd",
    "TracepointSpec",
    "Usage",
]
