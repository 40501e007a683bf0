"""The records that cross the border of db: one frozen dataclass per kind of row.

Plain data with no SQL and no third-party import, so any package may hold them. Times are
timezone-aware UTC datetimes, ids are UUID strings, shares are per cent (0 to 100, two decimals).
"""

from db.rows.batches import BatchPart, BatchRow, BatchStatus, FilePurpose, FileRow, NewBatch, StoredPart
from db.rows.canary import ArmFigures, CanaryStatus
from db.rows.conversation import ResponseRow, ResponseTurn
from db.rows.evaluation import EvalCaseRow, EvalMetricRow, EvalResultRow
from db.rows.lineage import AuditEventRow, AuditProblem, ProvenanceRow, TaughtRow
from db.rows.serving import (
    AdapterEventRow,
    AdapterRow,
    BaseModelRow,
    BlockerRow,
    EndpointRow,
    RegistryRows,
    ResidencyRow,
)
from db.rows.traffic import ConsentRow, FeedbackRecord, RequestRecord
from db.rows.training import FreezeParams, RunRow, SnapshotItem, SnapshotRow
from db.rows.words import (
    AdapterStatus,
    FeedbackKind,
    Finish,
    Json,
    RequestApi,
    RequestSource,
    RunStatus,
    Variant,
    Verdict,
)

__all__ = [
    "AdapterEventRow",
    "AdapterRow",
    "AdapterStatus",
    "ArmFigures",
    "AuditEventRow",
    "AuditProblem",
    "BaseModelRow",
    "BatchPart",
    "BatchRow",
    "BatchStatus",
    "BlockerRow",
    "CanaryStatus",
    "ConsentRow",
    "EndpointRow",
    "EvalCaseRow",
    "EvalMetricRow",
    "EvalResultRow",
    "FeedbackKind",
    "FeedbackRecord",
    "FilePurpose",
    "FileRow",
    "Finish",
    "FreezeParams",
    "Json",
    "NewBatch",
    "ProvenanceRow",
    "RegistryRows",
    "RequestApi",
    "RequestRecord",
    "RequestSource",
    "ResidencyRow",
    "ResponseRow",
    "ResponseTurn",
    "RunRow",
    "RunStatus",
    "SnapshotItem",
    "SnapshotRow",
    "StoredPart",
    "TaughtRow",
    "Variant",
    "Verdict",
]
