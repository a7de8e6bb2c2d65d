"""The pictures of the attacks: a card per private image, with what every defense left of it side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradveil.auditing.situation import Situations
from gradveil.io.pictures import readable_pixels
from gradveil.leakage.records import ESTIMATE, Record
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.report.groups import final_picture

# More would make a page that no browser likes; what is left out is said.
MOST_RECORDS = 1000
Setting = tuple[str, str, str, str]


@dataclass(frozen=True)
class Picture:
    """A picture with its caption; `png` is None where the record holds none that can be read."""

    caption: str
    png: str | None
    width: int
    height: int
    alt: str


@dataclass(frozen=True)
class Rebuilt:
    """What one attacker got of the image behind one defense; `shared` is what left the participant, where that is another."""

    record: Record
    picture: Picture
    shared: Picture | None


@dataclass(frozen=True)
class Card:
    """One private image of one network at one stage, to one attack."""

    dataset: str
    model: str
    stage: str
    attack: str
    index: int
    label: str
    private: Picture
    rebuilt: tuple[Rebuilt, ...]

    @property
    def percentile(self) -> float:
        """Of whoever finds it best; -1 where it has no decoys."""
        return max(-1.0 if one.record.percentile is None else one.record.percentile for one in self.rebuilt)

    @property
    def detail(self) -> float:
        return max(one.record.detail for one in self.rebuilt)

    @property
    def most_leaked_first(self) -> tuple[float, float, int]:
        return -self.percentile, -self.detail, self.index


def wall_of(records: Sequence[Record], situations: Situations) -> list[Card]:
    """A card per image, or where there are too many records the images that leak most, in every setting alike."""
    settings: dict[Setting, dict[int, list[Record]]] = {}
    for record in records:
        of = record.scenario
        setting = (of.dataset, of.model, str(situations(of)), of.attack_in_words)
        settings.setdefault(setting, {}).setdefault(record.index, []).append(record)
    ranked = {setting: sorted(images.values(), key=_most_leaked_first) for setting, images in settings.items()}
    chosen: list[tuple[Setting, list[Record]]] = []
    shown = 0
    for rank in range(max(map(len, ranked.values()))):
        for setting, images in ranked.items():
            if rank < len(images) and shown + len(images[rank]) <= MOST_RECORDS:
                chosen.append((setting, images[rank]))
                shown += len(images[rank])
    return sorted((_card(setting, own) for setting, own in chosen), key=lambda card: card.most_leaked_first)


def read_picture(record: Record, name: str, caption: str) -> Picture:
    """A picture of a record: a base64 PNG and its size, or nothing where it is something else, as records come from anyone."""
    pixels = readable_pixels(record.pictures[name])
    png, height, width = (None, 0, 0) if pixels is None else (record.pictures[name], *pixels.shape[:2])
    return Picture(caption, png, width, height, f"{caption}: image {record.index}, {record.label}")


def choices_of(cards: Sequence[Card], stages: Sequence[str]) -> dict[str, list[str]]:
    """What the wall can be filtered by, where there is more than one: name to values. `stages` come in this order."""
    records = [one.record.scenario for card in cards for one in card.rebuilt]
    found: Mapping[str, list[str]] = {
        "stage": list(stages),
        "defense": sorted({of.defense for of in records}, key=lambda name: (name != UNDEFENDED, name)),
        "attacker": sorted({of.attacker for of in records}, key=lambda name: (name != "plain", name)),
        "attack": sorted({card.attack for card in cards}),
        "model": sorted({card.model for card in cards}),
    }
    return {name: values for name, values in found.items() if len(values) > 1}


def _most_leaked_first(records: Sequence[Record]) -> tuple[float, float, int]:
    ranks = [-1.0 if one.percentile is None else one.percentile for one in records]
    return -max(ranks), -max(one.detail for one in records), records[0].index


def _card(setting: Setting, records: Sequence[Record]) -> Card:
    ordered = sorted(
        records,
        key=lambda one: (one.scenario.defense != UNDEFENDED, one.scenario.defense, one.scenario.attacker != "plain"),
    )
    first = ordered[0]
    seen: set[str] = set()
    rebuilt = []
    for record in ordered:
        final = final_picture(record)
        new = record.pictures["transformed"] != record.pictures["original"] and record.scenario.defense not in seen
        seen.add(record.scenario.defense)
        caption = "estimate" if final == ESTIMATE else "rebuilt"
        shared = read_picture(record, "transformed", "shared") if new else None
        rebuilt.append(Rebuilt(record, read_picture(record, final, caption), shared))
    return Card(*setting, first.index, first.label, read_picture(first, "original", "private"), tuple(rebuilt))
