"""From what one session comes to, to what a day of sessions needs."""

from dataclasses import dataclass
from math import ceil

from service.sizing.load import Load

DAY_SECONDS = 86_400.0
YEAR_DAYS = 365.25


@dataclass(frozen=True, slots=True)
class Drive:
    """A drive: its capacity, and what may be written to it in its life."""

    capacity_bytes: float
    endurance_bytes: float

    @classmethod
    def rated(cls, capacity_bytes: float, drive_writes_per_day: float, years: float) -> "Drive":
        """A drive that is rated for so many full writes a day over a warranty."""
        return cls(capacity_bytes, capacity_bytes * drive_writes_per_day * years * YEAR_DAYS)


@dataclass(frozen=True, slots=True)
class Demand:
    """How much of a load there is, and the reserves to plan with.

    Args:
        units_per_day: sessions (or requests) a day.
        peak_factor: the busiest hour's rate by the mean rate, 1 or more.
        headroom: SSD budget by what lives on it, 1 or more: what has expired keeps its place until its segment goes.
        write_factor: what goes to the disk by what is stored, 1 or more: carrying forward, and the index.
        drive: what the SSD tier is made of, or None.
    """

    units_per_day: float
    peak_factor: float = 3.0
    headroom: float = 1.2
    write_factor: float = 1.2
    drive: Drive | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a demand needs. Rates are a day's means, bandwidths those of the peak, in bytes a second."""

    load: Load
    demand: Demand
    ssd_bytes: float
    dram_bytes: float
    written_bytes_per_day: float
    peak_ssd_read: float
    peak_ssd_write: float
    peak_dram_read: float
    peak_dram_write: float

    @classmethod
    def of(cls, load: Load, demand: Demand) -> "Plan":
        """Little's law: what is on a shelf is the rate at which it comes times how long it stays.

        The SSD keeps things for days, so a day's mean counts; the pool for minutes, so its peak does.
        """
        rate = demand.units_per_day / DAY_SECONDS
        peak = rate * demand.peak_factor
        written = load.written_bytes * demand.write_factor
        return cls(
            load=load,
            demand=demand,
            ssd_bytes=(load.ssd_byte_seconds * rate + load.shared_ssd_bytes) * demand.headroom,
            dram_bytes=load.dram_byte_seconds * peak,
            written_bytes_per_day=written * demand.units_per_day,
            peak_ssd_read=load.loaded_ssd_bytes * peak,
            peak_ssd_write=written * peak,
            peak_dram_read=load.loaded_dram_bytes * peak,
            peak_dram_write=load.stored_dram_bytes * peak,
        )

    def per_day(self, per_unit: float) -> float:
        """A day's sum of what a session comes to."""
        return per_unit * self.demand.units_per_day

    def drives(self) -> dict[str, float] | None:
        """How many drives hold the SSD tier, and how long they last; None where none is named."""
        drive = self.demand.drive
        if drive is None:
            return None
        count = max(1, ceil(self.ssd_bytes / drive.capacity_bytes))
        written = self.written_bytes_per_day
        return {
            "count": count,
            "capacity_bytes": drive.capacity_bytes,
            "drive_writes_per_day": written / (count * drive.capacity_bytes),
            "endurance_years": count * drive.endurance_bytes / (written * YEAR_DAYS) if written else float("inf"),
        }

    def document(self) -> dict[str, object]:
        """All of it as plain data for JSON. ``endurance_years`` is null where nothing is ever written."""
        load, drives = self.load, self.drives()
        if drives is not None and not self.written_bytes_per_day:
            drives = {name: figure for name, figure in drives.items() if name != "endurance_years"}
        return {
            f"{load.unit}s_per_day": self.demand.units_per_day,
            "requests_per_day": self.per_day(load.requests),
            "prompt_tokens_per_day": self.per_day(load.prompt_tokens),
            "run_tokens_per_day": self.per_day(load.run_tokens),
            "token_hit_rate": load.hit_tokens / load.prompt_tokens,
            "resume_shares": load.resume_shares,
            "bounded_replay_share": load.resume_shares["bounded_replay"],
            "replayed_token_share": load.replayed_tokens / load.prompt_tokens,
            "ssd_bytes": self.ssd_bytes,
            "ssd_tb": self.ssd_bytes / 1e12,
            "shared_ssd_bytes": load.shared_ssd_bytes,
            "dram_bytes": self.dram_bytes,
            "dram_gb": self.dram_bytes / 1e9,
            "written_bytes_per_day": self.written_bytes_per_day,
            "peak_bytes_per_second": {
                "ssd_read": self.peak_ssd_read,
                "ssd_write": self.peak_ssd_write,
                "dram_read": self.peak_dram_read,
                "dram_write": self.peak_dram_write,
            },
            "drives": drives,
        }
