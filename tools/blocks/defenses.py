"""What defenses hide, from an attacker who ignores them and from one who knows them, and what they cost."""

from typing import Any

from blocks.wording import GRADES, LEGEND, accuracy, escaped, header, seen, text


def headline(record: dict[str, Any]) -> str:
    """How many defenses leave an attacker with nothing, who ignores them and who knows them."""
    rows = [row for row in record["rows"] if "adaptive" in row and not row["defense"].startswith("random")]
    holding = {who: [row["defense"] for row in rows if row[who]["grade"] == GRADES[0]] for who in ("plain", "adaptive")}
    proven = all(defense.startswith("dp-sgd") for defense in holding["adaptive"])
    images = [row["adaptive"]["n"] for row in rows]
    return (
        f"We attacked {len(rows)} settings of published defenses on `{record['model']}`, {min(images)} to {max(images)} images "
        f"each. An attacker who ignores the defense finds nothing behind {len(holding['plain'])} of them. One who knows it finds "
        f"nothing behind **{len(holding['adaptive'])}**{', all of them DP-SGD' if proven else ''}. So few images show what "
        "breaks, and prove nothing safe.\n"
    )


def survives(record: dict[str, Any], trainings: dict[str, Any]) -> str:
    """Does a defense survive an attacker who knows it? The grades of all of them, and what they cost."""
    costs = {row["defense"]: row for row in trainings["rows"]}
    lines = header("defense", "attacker who ignores it", "attacker who knows it", "images", "accuracy")
    for row in record["rows"]:
        plain, adaptive = row["plain"], row.get("adaptive")
        knows = "" if adaptive is None else f"**{adaptive['grade']}** ({adaptive['percentile']:.0%})"
        lines.append(
            f"| `{escaped(row['defense'])}` | {plain['grade']} ({plain['percentile']:.0%}) | {knows} | "
            f"{plain['n']} | {costs[row['defense']]['accuracy']:.0%} |"
        )
    lines.append(
        f"\nThe grade of the leak, and in brackets the mean fraction of other images of its class that the private image ranks "
        f"above (50% is chance, 100% always finds it): {record['attack']} on one gradient of the untrained `{record['model']}`, "
        f"{record['dataset']}. Accuracy after {costs['none']['seeds']} short trainings."
    )
    return text(lines)


def defenses(record: dict[str, Any], costs: dict[str, Any]) -> str:
    """All defenses side by side, from `python -m bench.defenses`."""
    lines = header(
        "defense", "test accuracy (standard error, seeds)", "epsilon", "plain attacker", "attacker who knows it"
    )
    attacked = {row["defense"]: row for row in record["rows"]}
    for row in costs["rows"]:
        epsilon = f"{row['epsilon']:,.{0 if row['epsilon'] > 100 else 2}f}" if "epsilon" in row else ""
        defense, found = escaped(row["defense"]), attacked[row["defense"]]
        lines.append(
            f"| `{defense}` | {accuracy(row)} | {epsilon} | {seen(found, 'plain')} | {seen(found, 'adaptive')} |"
        )
    deltas = ", ".join(sorted({f"{row['delta']:g}" for row in costs["rows"] if "delta" in row}))
    lines.append(
        f"\n`{record['model']}` on {record['dataset']}, {costs['epochs']} epochs with batches of {costs['batch_size']} and "
        f"rate {costs['lr']:g} for all of them: accuracy on {costs['test_images']} test images, its standard error over seeds "
        f"where there are several and else over test images; epsilon at delta {deltas}. Attacks ({record['attack']}, "
        f"{record['iterations']} iterations) are on the gradient of one image on the untrained network, for up to "
        f"{len(record['images'])} images. {LEGEND}"
    )
    return text(lines)


def adaptive(record: dict[str, Any]) -> str:
    """What knowing the defense is worth, from `python -m bench.adaptive`."""
    lines = header(
        "untrained network",
        "defense",
        "plain attacker",
        "attacker who knows it",
        "won, in points and dB (standard error)",
    )
    for row in record["rows"]:
        won = ""
        if "psnr_won" in row:
            points, error = 100 * row["percentile_won"], 100 * row["percentile_won_se"]
            won = f"{points:+.0f} ({error:.0f}), {row['psnr_won']:+.1f} ({row['psnr_won_se']:.1f})"
        lines.append(
            f"| {row['model']} | `{row['defense']}` | {seen(row, 'plain')} | {seen(row, 'adaptive')} | {won} |"
        )
    lines.append(
        f"\n{record['attack']} with {record['iterations']} iterations on {len(record['images'])} images of {record['dataset']}. "
        f"{LEGEND} Both attackers have the training images as public ones."
    )
    return text(lines)


def precode(record: dict[str, Any], costs: dict[str, Any]) -> str:
    """What the bottleneck's size and weight hide and cost, from `python -m bench.precode`."""
    lines = header(
        "network", "defense", "test accuracy (standard error, seeds)", "plain attacker", "attacker who knows it"
    )
    attacked = {(row["model"], row["defense"]): row for row in record["rows"]}
    for row in costs["rows"]:
        found = attacked.get((row["model"], row["defense"]), {})
        attackers = f"{seen(found, 'plain')} | {seen(found, 'adaptive')}"
        lines.append(f"| {row['model']} | `{row['defense']}` | {accuracy(row)} | {attackers} |")
    settings = "; ".join(
        f"{name}: {case['epochs']} epochs, batches of {case['batch_size']}, rate {case['lr']:g}, attacked by {case['attack']} "
        f"with {case['iterations']} iterations"
        for name, case in record["cases"].items()
    )
    lines.append(
        f"\n{record['dataset']}, short trainings ({settings}): accuracy on {costs['test_images']} test images, its standard "
        "error over seeds where there are several and else over test images. Attacks are on the untrained network, on "
        f"{len(record['images'])} images. {LEGEND} One rate was set per network, by test accuracy "
        "without PRECODE and with k=256, beta=0.001: other settings may want another."
    )
    return text(lines)


def masks(record: dict[str, Any], costs: dict[str, Any]) -> str:
    """What attackers get behind estimated masks of Soteria's, from `python -m bench.masks`."""
    lines = header(
        "untrained network",
        "defense",
        "plain attacker",
        "against the exact mask, in points and dB (standard error)",
        "attacker who knows it",
    )
    for row in record["rows"]:
        gap = ""
        if "plain_percentile_gap" in row:
            points, points_se = (100 * row[f"plain_percentile_{key}"] for key in ("gap", "gap_se"))
            gap = (
                f"{points:+.1f} ({points_se:.1f}), {row['plain_detail_gap']:+.1f} dB ({row['plain_detail_gap_se']:.1f})"
            )
        lines.append(
            f"| {row['model']} | `{row['defense']}` | {seen(row, 'plain')} | {gap} | {seen(row, 'adaptive')} |"
        )
    exact = {row["defense"]: row for row in costs["rows"]}
    trained = [exact["none"], exact["soteria:0.4"], *record["trainings"]]
    accuracies = ", ".join(f"`{row['defense']}` {accuracy(row)}" for row in trained)
    iterations = ", ".join(f"{count} iterations on {model}" for model, count in record["iterations"].items())
    lines.append(
        f"\n{record['attack']} ({iterations}) on images of {record['dataset']}. {LEGEND} "
        f"Test accuracy of `lenet` after {record['epochs']} epochs (standard error, seeds): {accuracies}."
    )
    return text(lines)
