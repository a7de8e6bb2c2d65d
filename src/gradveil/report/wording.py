"""What the page explains: defenses, words and what attackers knew."""

from collections.abc import Sequence

from gradveil.auditing.power import describe_power
from gradveil.auditing.study import Study
from gradveil.auditing.summary import OverallVerdict
from gradveil.auditing.verdicts import CANNOT_TELL, EXACT, FAILED, GRADES, LEAKS, PROTECTS, Level, Verdict
from gradveil.defenses import DEFENSES
from gradveil.errors import GradveilError
from gradveil.leakage.identification import Identification
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.transforms import Policy

DEFINITIONS = {
    "Lineup": (
        "The attack rebuilds an image from the gradient. The private image then stands among up to 100 decoys: other images of "
        "its class and split, drawn by the seed, none of them a copy. All are ranked by how much they look like what was rebuilt "
        "(correlation of pixels). An attacker who knows the defense compares with every way in which it can change an image. If "
        "the gradient does not say which image of the class it was, every place is equally likely."
    ),
    "Ranks above": (
        "The fraction of decoys that look less like what was rebuilt than the private image does, averaged over images. By "
        "chance it is 50%; at 100% the right image is always first. This figure decides."
    ),
    "First": "How often the private image is the most alike of all. Among 100 decoys that happens by chance once in 101.",
    "Worst attacker": (
        "Of all attacks and attackers the one to whom the private images rank highest. Averages over attacks would hide the one "
        "that works. p-values are exact, and corrected for the number of attacks and for looking at ranks and firsts."
    ),
    "Verdicts": (
        "Leaks: some attacker ranks the private images higher, or has them first more often, than luck allows. Protects against "
        "the attacks tried: the attack leaks without the defense; with it, no attacker's figure can be above the tolerance, and "
        "none has the right image first more often than luck allows. Attack failed: nothing leaks without the defense either. "
        "Cannot tell: everything else. None of them says safe: attacks that were not tried may do better."
    ),
    "Grades": (
        "How much a leak gives away. "
        + " ".join(f"{grade.capitalize()}: {meaning}." for grade, meaning in GRADES.items())
        + f" Exact begins at a detail of {EXACT:g} dB."
    ),
    "PSNR and SSIM": (
        "How near one picture is to another. PSNR is in decibels (dB): 10 dB more mean a tenth of the squared error, and from "
        "about 30 dB on two small pictures look the same. SSIM is 1 for equal pictures and near 0 for unrelated ones. Both fall "
        "when an image is merely moved, recoloured or noisy, which hides nothing: they do not decide."
    ),
    "Detail": (
        "PSNR of the attacker's estimate to the private image, less that of the best guess which the same attacker makes without "
        "the gradient: the mean of the public images of the class, of all public images where it knows no label, and one colour "
        "where it has no public images. At 0 dB or below the estimate is no nearer than that guess."
    ),
    "Estimate": (
        "What the attacker ends with: the rebuilt image, with a policy undone where it knows one, and noise taken out."
    ),
    "As published": (
        "PSNR of the rebuilt image to the shared one, for comparison with papers only. Where a policy changed the image, what "
        "was shared is not the private image."
    ),
    "Labels read": "How many of the labels can be read off the gradient, before anything is rebuilt.",
    "Placebo": (
        "Another image of the class, which was not attacked, ranked by what was rebuilt of the attacked one. It must come out at "
        "50%: a measure that finds a leak there is broken."
    ),
    "(eps, delta, gamma)": (
        "Gao et al. (2021): a defense is (eps, delta, gamma)-private where Pr[PSNR < eps] is at least 1 - delta and "
        "accuracy falls by less than gamma; the PSNR is the published one. Here delta is the one-sided exact upper bound "
        "(Clopper-Pearson, 95%) of the fraction of images that some attack rebuilt at eps or better, gamma the upper end of the "
        '95% interval of the accuracy loss. With "identified" for eps, delta bounds the fraction of images that come first.'
    ),
    "Intervals": (
        "95%. Of ranks: Gaffke's, which holds for any distribution. It is wider than the exact test that decides, so that a "
        "leak can show while the interval still holds 50%. Of means in dB: Student's t over images. Of fractions: "
        "Clopper-Pearson. Of accuracy losses: Student's t over training seeds, or Newcombe over test images where there is one "
        "training. Of rank correlations: Bonett and Wright; p-values after Holm. Where several images are behind a message, "
        "those over images count messages."
    ),
}
OTHER_THREAT = (
    "An attacker who already has candidate images can compute their gradients and compare them with the shared one. That "
    "identifies the right image nearly always and needs no reconstruction. It is another threat, which this audit does not "
    "measure."
)


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


def describe_lineup(found: Identification) -> str:
    """What a rank says, for somebody who has never heard of PSNR."""
    return (
        f"the right image looks more like what was rebuilt than {found.percentile:.0%} of {found.decoys:.0f} others of its "
        f"class; it is first for {found.first.count} of {found.n}"
    )


def describe_power_of(study: Study) -> list[str]:
    """What the audit could have found, for the fewest and the most images of a cell."""
    sizes = sorted({one.n for one in study.findings})
    return [
        f"{describe_power(n, max(len(one.attacks) for one in study.findings if one.n == n), study.run.tolerance)}."
        for n in dict.fromkeys((sizes[0], sizes[-1]))
    ]


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
