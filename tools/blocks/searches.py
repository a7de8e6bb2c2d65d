"""What scores predict, and what searches for policies find."""

from typing import Any

from blocks.wording import header, text


def calibration(record: dict[str, Any]) -> str:
    """Which share of random policies passes the accuracy filter."""
    settings, published = record["settings"], record["published"]
    allowances = list(settings[0]["passing"])
    lines = [
        f"Share of {settings[0]['policies']} random policies that pass, by `--redundancy`:\n",
        *header("images", "network's classes", *allowances),
    ]
    for row in settings:
        shares = " | ".join(f"{row['passing'][allowance]:.0%}" for allowance in allowances)
        lines.append(f"| {row['dataset']}, untrained {row['model']} | {row['classes']} | {shares} |")
    if published is not None:
        lines.append(
            f"\nThe published -85 on {published['images']} images corresponds to a `--redundancy` of "
            f"{published['allowance']:.1f} on photographs (untrained resnet20-4 with 100 classes on CIFAR-10 images; "
            "S_acc does not look at labels)."
        )
    return text(lines)


def predictors(record: dict[str, Any]) -> str:
    """How well each score predicts what an attacker gets, from `python -m bench.predictors`."""
    settings = record["settings"]
    lines = header(
        "`--score`",
        "gradients per image",
        "Spearman with identification (95%)",
        "better than `grad-sim` by (95%)",
        "better than `smoothness` by (95%)",
        "Spearman with detail (95%)",
    )
    for row in record["scores"]:
        gaps = []
        for other, name in (("published", "grad-sim"), ("smoothness", "smoothness")):
            gaps.append("" if row["score"] == name else _correlation(row, f"percentile_over_{other}"))
        lines.append(
            f"| {row['score']} | {row['evaluations']:.0f} | {_correlation(row, 'percentile')} | {' | '.join(gaps)} | "
            f"{_correlation(row, 'detail')} |"
        )
    sure = record["reliability"]
    lines.append(
        f"\nOver {record['n']} random policies that nothing was tuned on: {settings['attack']} with "
        f"{settings['iterations']} iterations on {settings['images']} images each by an attacker who knows the policy, "
        f"{settings['stage']} {settings['model']}, {settings['dataset']}; scores on {settings['scored']} other images. What is "
        f"predicted has itself a reliability of {sure['percentile']:.2f} (mean percentile among decoys) and {sure['detail']:.2f} "
        "(detail). `variance` and `smoothness` look at no gradient at all: a score that does not beat them has learned nothing "
        "from the network. A score is better where the interval excludes 0."
    )
    return text(lines)


def _correlation(row: dict[str, Any], name: str) -> str:
    low, high = row[f"{name}_interval"]
    return f"{row[name]:+.2f} ({low:+.2f} to {high:+.2f})"


def identification_search(record: dict[str, Any]) -> str:
    """What `python -m bench.identification` says of searched and random policies."""
    judged = record["judged"]
    stages = [f"{one['steps']} steps" if one["steps"] else "untrained" for one in judged]
    titles = [
        f"{one['model']}, {stage}, {one['iterations']} iterations" for one, stage in zip(judged, stages, strict=True)
    ]
    lines = header("ten policies", *titles, "accuracy")
    for number, trained in enumerate(record["accuracy"]):
        cells = [_judged(one["rows"][number]) for one in judged]
        lines.append(
            f"| {trained['policies']} | {' | '.join(cells)} | {trained['accuracy']:.1%} ± {trained['se']:.1%} |"
        )
    lines.append("")
    for one, title in zip(judged, titles, strict=True):
        said = []
        for row in one["rows"]:
            for other in ("identity", "random"):
                if "search" in row["policies"]:
                    low, high = (100 * end for end in row[f"percentile_minus_{other}_interval"])
                    gap = 100 * row[f"percentile_minus_{other}"]
                    said.append(f"{row['policies']} minus {other} {gap:+.1f} ({low:+.1f} to {high:+.1f})")
        lines.append(f"- {title}, points of percentile: {'; '.join(said)}.")
    lines.append(
        "\nThe decoys that the private image ranks above on average (95% interval over policies and images; chance is 50%), and "
        f"how often it is first: fast by an attacker who knows the policy, {record['images']} images of {record['dataset']}, on "
        f"networks, images and seeds that no search has seen. Both searches looked at {record['searched']} policies on "
        f"{record['searched_on']}. Accuracy after short trainings, one per policy (± standard error over policies)."
    )
    return text(lines)


def _judged(row: dict[str, Any]) -> str:
    low, high = row["percentile_interval"]
    return f"{row['percentile']:.1%} ({low:.1%} to {high:.1%}), first {row['first']:.0%}"


def beyond(record: dict[str, Any]) -> str:
    """What `python -m bench.identification` says of operations beyond the published ones."""
    lines = header("beyond the 50 operations", "lenet", "convnet-8", "accuracy", "on images changed alike")
    for row in record["beyond"]:
        cells = [_judged(row[model]) for model in ("lenet", "convnet-8")]
        lines.append(
            f"| {row['name']} | {' | '.join(cells)} | {row['accuracy']:.1%} | {row['accuracy_transformed']:.1%} |"
        )
    lines.append(
        "\nUntrained networks, the same judge; one training each, tested on images as they are and changed alike."
    )
    return text(lines)
