"""What attack records allow to be said of a defense: figures with intervals, verdicts, and which images are vulnerable.

`matrix.run_audit` attacks and gives a `Study`; `read_study(folder)` gives that of an earlier run. Inside it goes
`findings_of(records, eps)` -> `verdicts_on(findings, controls)` -> `overall_verdicts(verdicts)`; beside them `accuracy_losses`,
`statement` and `vulnerability_of`. Those are pure functions, and what they return becomes JSON through `dataclasses.asdict`.
"""

from gradveil.audit.accuracy import Accuracy, AccuracyLoss, accuracy_loss, accuracy_losses
from gradveil.audit.comparisons import Comparison
from gradveil.audit.correlations import Agreement, Correlation
from gradveil.audit.findings import AttackFindings, Findings, ImageFigures, Spreads, findings_of
from gradveil.audit.folder import RunFolder, read_run
from gradveil.audit.identification import Identification
from gradveil.audit.notes import RunNotes
from gradveil.audit.plan import AuditPlan, AuditSettings
from gradveil.audit.properties import Properties, image_properties
from gradveil.audit.proportions import Proportion
from gradveil.audit.spread import Spread, spread_of
from gradveil.audit.study import DefenseSummary, Judgment, Study, read_study
from gradveil.audit.success import Success, statement
from gradveil.audit.summary import OverallVerdict, overall_verdicts
from gradveil.audit.verdicts import Level, Tone, Verdict, verdicts_on
from gradveil.audit.vulnerability import Vulnerability, VulnerableImage, vulnerability_of

__all__ = [
    "Accuracy",
    "AccuracyLoss",
    "Agreement",
    "AttackFindings",
    "AuditPlan",
    "AuditSettings",
    "Comparison",
    "Correlation",
    "DefenseSummary",
    "Findings",
    "Identification",
    "ImageFigures",
    "Judgment",
    "Level",
    "OverallVerdict",
    "Properties",
    "Proportion",
    "RunFolder",
    "RunNotes",
    "Spread",
    "Spreads",
    "Study",
    "Success",
    "Tone",
    "Verdict",
    "Vulnerability",
    "VulnerableImage",
    "accuracy_loss",
    "accuracy_losses",
    "findings_of",
    "image_properties",
    "overall_verdicts",
    "read_run",
    "read_study",
    "spread_of",
    "statement",
    "verdicts_on",
    "vulnerability_of",
]
