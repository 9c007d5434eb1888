"""What a workload needs, as tables for a person."""

from typing import Any

from service.cli.tables import size, table


def describe(document: dict[str, Any]) -> str:
    """All tables, an empty line between them."""
    parts = [_model(document["profile"], document["model"])]
    if "plan" in document:
        parts += [_workload(document["workload"], document["plan"]), _needs(document["plan"])]
    if "prices" in document:
        parts.append(_prices(document["prices"]))
    return "\n\n".join(parts)


def _model(profile: str, model: dict[str, Any]) -> str:
    rows = [
        ("global KV a token", size(model["global_bytes_per_token"])),
        *((f"global KV of {int(tokens):,} tokens", f"{gib:,.4g} GiB") for tokens, gib in model["context_gib"].items()),
        ("a snapshot", size(model["snapshot_bytes"])),
    ]
    ratio = model["snapshots_at_every_block_by_global"]
    if ratio is not None:
        rows.append((f"snapshots at every block of {model['block_tokens']}, by global KV", f"{ratio:.1f} times"))
    return table((profile, ""), rows)


def _workload(workload: dict[str, Any], plan: dict[str, Any]) -> str:
    unit = "sessions" if "sessions_per_day" in plan else "requests"
    made_up = " (generated)" if workload["generated"] else ""
    title = "workload" if workload["format"] == "numbers" else f"workload {workload['trace']}{made_up}"
    rows = [(f"{unit} a day", f"{plan[f'{unit}_per_day']:,.0f}")]
    if unit == "sessions":
        rows.append(("requests a day", f"{plan['requests_per_day']:,.0f}"))
    rows += [
        ("prompt tokens a day", f"{plan['prompt_tokens_per_day']:,.4g}"),
        ("token hit rate", f"{plan['token_hit_rate']:.2%}"),
        ("tokens run a day", f"{plan['run_tokens_per_day']:,.4g}"),
        ("tokens replayed, of the prompts'", f"{plan['replayed_token_share']:.3%}"),
        *((f"requests by {mode}", f"{share:.1%}") for mode, share in plan["resume_shares"].items() if share),
    ]
    return table((title, ""), rows)


def _needs(plan: dict[str, Any]) -> str:
    peak = plan["peak_bytes_per_second"]
    rows = [
        ("SSD", size(plan["ssd_bytes"])),
        ("DRAM pool", size(plan["dram_bytes"])),
        ("written to disk a day", size(plan["written_bytes_per_day"])),
        *((f"{name.replace('_', ' ')} at the peak", f"{size(rate)}/s") for name, rate in peak.items()),
    ]
    drives = plan["drives"]
    if drives is not None:
        rows += [
            (f"drives of {size(drives['capacity_bytes'])}", f"{drives['count']:,}"),
            ("full writes of each a day", f"{drives['drive_writes_per_day']:.3g}"),
            ("years that they last", f"{drives['endurance_years']:.3g}" if "endurance_years" in drives else "for ever"),
        ]
    return table(("needs", ""), rows)


def _prices(prices: dict[str, float | None]) -> str:
    def shown(name: str, form: str = ",.4g") -> str:
        value = prices[name]
        return "-" if value is None else format(value, form)

    rows = [
        ("a million tokens missed", shown("miss_per_million_tokens")),
        ("a million tokens hit", shown("hit_per_million_tokens")),
        ("hit by miss", shown("hit_share_of_miss", ".2%")),
        ("the shelves a day", shown("shelves_per_day")),
        ("replays a day", shown("replay_per_day")),
        ("saved a day", shown("saved_per_day")),
    ]
    return table(("prices", ""), rows)
