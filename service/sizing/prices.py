"""What a hit and a miss cost, at the operator's prices."""

from dataclasses import dataclass

from service.sizing.plan import YEAR_DAYS, Plan

_MONTH_DAYS = YEAR_DAYS / 12
_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in any one currency.

    Args:
        engine_hour: an hour of one engine, all its accelerators together.
        prefill_tokens_per_second: what that engine prefills, above 0.
        ssd_tb_month: a terabyte of SSD for a month, its share of the machine included.
        dram_gb_month: a gigabyte of DRAM for a month.
    """

    engine_hour: float
    prefill_tokens_per_second: float
    ssd_tb_month: float
    dram_gb_month: float

    @property
    def miss_per_million(self) -> float:
        """A million tokens that are run: engine time."""
        return self.engine_hour / 3600 / self.prefill_tokens_per_second * _MILLION

    def document(self, plan: Plan) -> dict[str, float | None]:
        """Costs a day, and for a million tokens that plans used from the shelves (``hit``) or ran (``miss``).

        A hit costs its part of the shelves, and of the engine's time the tokens that it replays. Where there is no hit
        its price is None.
        """
        shelves = (plan.ssd_bytes / 1e12 * self.ssd_tb_month + plan.dram_bytes / 1e9 * self.dram_gb_month) / _MONTH_DAYS
        replayed = plan.per_day(plan.load.replayed_tokens) / _MILLION * self.miss_per_million
        hits = plan.per_day(plan.load.saved_tokens + plan.load.replayed_tokens) / _MILLION
        hit = (shelves + replayed) / hits if hits else None
        return {
            "miss_per_million_tokens": self.miss_per_million,
            "hit_per_million_tokens": hit,
            "hit_share_of_miss": hit / self.miss_per_million if hit is not None and self.miss_per_million else None,
            "shelves_per_day": shelves,
            "replay_per_day": replayed,
            "saved_per_day": plan.per_day(plan.load.saved_tokens) / _MILLION * self.miss_per_million - shelves,
        }
