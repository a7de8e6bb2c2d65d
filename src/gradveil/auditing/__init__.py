"""What attack records allow to be said of a defense: figures with intervals, verdicts, and which images are vulnerable.

`matrix.run_audit` attacks and gives a `Study`; `read_study(folder)` gives that of an earlier run. Inside it goes
`findings_of(records, eps)` -> `verdicts_on(findings, controls)` -> `overall_verdicts(verdicts)`; beside them `accuracy_losses`,
`statements` and `vulnerability_of`. Those are pure functions, and what they return becomes JSON through `dataclasses.asdict`.
"""

from gradveil.auditing.accuracy import Accuracy, accuracy_loss, accuracy_losses
from gradveil.auditing.findings import Findings, findings_of
from gradveil.auditing.folder import RunFolder, read_run
from gradveil.auditing.notes import RunNotes
from gradveil.auditing.plan import AuditPlan, AuditSettings
from gradveil.auditing.properties import image_properties
from gradveil.auditing.spread import spread_of
from gradveil.auditing.statements import statements
from gradveil.auditing.study import Study, read_study
from gradveil.auditing.summary import overall_verdicts
from gradveil.auditing.verdicts import Level, Verdict, verdicts_on
from gradveil.auditing.vulnerability import vulnerability_of

__all__ = [
    "Accuracy",
    "AuditPlan",
    "AuditSettings",
    "Findings",
    "Level",
    "RunFolder",
    "RunNotes",
    "Study",
    "Verdict",
    "accuracy_loss",
    "accuracy_losses",
    "findings_of",
    "image_properties",
    "overall_verdicts",
    "read_run",
    "read_study",
    "spread_of",
    "statements",
    "verdicts_on",
    "vulnerability_of",
]
