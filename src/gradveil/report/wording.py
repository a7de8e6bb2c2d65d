"""What the page explains: defenses, words and what attackers knew."""

from collections.abc import Sequence

from gradveil.auditing.summary import OverallVerdict
from gradveil.auditing.verdicts import CANNOT_TELL, FAILED, LEAKS, PROTECTS, Level, Verdict
from gradveil.defenses import DEFENSES
from gradveil.errors import GradveilError
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.transforms import Policy

DEFINITIONS = {
    "Gain, the leakage figure": (
        "PSNR of what the attacker rebuilt minus the PSNR of the null, in dB. Above 0 the gradient gave something "
        "away. PSNR alone says less: it is also high for plain images. For an attacker who does not know the defense the "
        "gain is to what was shared (the transformed image), for one who does it is to the original."
    ),
    "Null": (
        "The best guess of one constant colour per channel: what somebody gets who learns nothing but the mean of "
        "each channel."
    ),
    "Worst case": (
        "For every image the attack and attacker with the largest gain. Averages over attacks would hide the one that "
        "works. A run that diverged counts as a gain of 0."
    ),
    "(eps, delta, gamma)": (
        "Gao et al. (2021): a defense is (eps, delta, gamma)-private where Pr[PSNR < eps] is at least 1 - delta and "
        "accuracy falls by less than gamma. Here delta is the one-sided exact upper bound (Clopper-Pearson, 95%) of "
        "the fraction of images that some attack rebuilt at eps or better, gamma the upper end of the 95% interval of "
        "the accuracy loss."
    ),
    "Identification": (
        "Which of all audited originals is most like the reconstruction (Pearson correlation of pixels)? Counted, "
        "with the exact interval and the exact binomial p-value against chance; the best of several attacks pays for "
        "the choice (Bonferroni)."
    ),
    "Intervals": (
        "95%. Of means: Student's t over images. Of fractions: Clopper-Pearson. Of accuracy losses: Student's t over "
        "training seeds, or Newcombe over test images where there is one training. Of rank correlations: Bonett and "
        "Wright; p-values after Holm."
    ),
    "Verdicts": (
        "Leaks: the mean worst-case gain is clearly above 0, or an image reaches the smallest eps and its null does "
        "not, or images are identified more often than by chance. Attack failed: none of that without the defense "
        "either. Protects: the undefended attack works, the defended one shows none of it, and no doubt is left "
        "(enough images, interval below 0, clearly less than undefended, no image that stands out, no missing runs). "
        "Cannot tell: everything else. None of them says safe: attacks that were not tried may do better."
    ),
}


# A verdict in two words.
SHORT: dict[Level, str] = {
    LEAKS: "Leaks",
    PROTECTS: "Protects against the attacks tried",
    CANNOT_TELL: "Cannot tell",
    FAILED: "Attack failed without it too",
}
# And in one, where the two stand nearby.
WORD: dict[Level, str] = {LEAKS: "leaks", PROTECTS: "protects", CANNOT_TELL: "cannot tell", FAILED: "attack failed"}


def short_verdict(one: Verdict | OverallVerdict) -> str:
    """A verdict in two words; without a defense there is no "it"."""
    return "Attack failed" if one.level == FAILED and one.defense == UNDEFENDED else SHORT[one.level]


def describe_defense(defense: str) -> str:
    """What a defense does."""
    return "; ".join(_describe_one(part.strip()) for part in defense.split("|"))


def _describe_one(defense: str) -> str:
    kind = DEFENSES.get(defense.partition(":")[0])
    if kind is not None:
        return (kind.__doc__ or "").strip().splitlines()[0].rstrip(".").replace("`", "")
    try:
        return " — or: ".join(Policy.parse(defense).describe())
    except GradveilError:
        # A record may name an operation that its maker registered and we do not have.
        return "a policy with operations that are not registered here"


def attacker_knowledge(records: Sequence[Record]) -> dict[str, dict[str, str]]:
    """What attackers knew, by item and attacker; several answers are joined."""
    merged: dict[str, dict[str, list[str]]] = {}
    for record in records:
        for item, value in record.knowledge.items():
            answers = merged.setdefault(item, {}).setdefault(record.scenario.attacker, [])
            if value not in answers:
                answers.append(value)
    return {item: {who: "; ".join(answers) for who, answers in by.items()} for item, by in merged.items()}
