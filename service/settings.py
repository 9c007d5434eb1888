"""Every setting of the service: one TOML file, ``KVSHELF_`` environment variables, command-line flags, in that order.

A nested setting is ``KVSHELF_POOL__TTL_SECONDS`` in the environment and ``ttl_seconds`` under ``[pool]`` in the file.
Unknown keys are refused. ``docs/configuration.md`` describes each one; a test holds the two together.
"""

import difflib
import ipaddress
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import SettingsError as PydanticSettingsError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MAX_BYTES = 1 << 60
MAX_SECONDS = 10 * 365 * 86_400.0
"""Ten years: what is longer is no time to live but a mistake, and overflows the clocks of others."""


class SettingsError(ValueError):
    """The settings are unusable; the text names each setting that is wrong and why."""


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSettings(_Group):
    """Where and how the service listens."""

    host: str = Field("127.0.0.1", description="Address to bind. Only loopback addresses are accepted in this version.")
    port: int = Field(8710, ge=0, le=65_535, description="Port of the REST face; 0 takes a free one and says which.")
    workers: int = Field(16, ge=1, le=256, description="Threads that do blocking work (disk, Redis, hashing).")
    drain_seconds: float = Field(
        10.0, ge=0, le=600, description="How long a stop waits for requests under way before it cuts them off."
    )
    log_format: Literal["json", "text"] = Field("json", description="`json` for machines, `text` for a person.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least level that is logged."
    )

    @field_validator("host")
    @classmethod
    def _is_loopback(cls, host: str) -> str:
        """There is no authentication yet, so nobody beyond this machine may reach the service."""
        try:
            loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise ValueError(f"{host!r} is no loopback address; use 127.0.0.1, ::1 or localhost")
        return host


class StoreSettings(_Group):
    """The SSD tier: global KV."""

    data_dir: Path = Field(Path("kvshelf-data"), description="Directory of the SSD tier and of the namespaces.")
    budget_bytes: int = Field(
        10 * GIB, ge=16 * MIB, le=MAX_BYTES, description="Bytes on disk that segments and index may take together."
    )
    ttl_seconds: float = Field(
        72 * 3600.0, gt=0, le=MAX_SECONDS, description="Life of a block from its last use; 72 h by default."
    )
    when_full: Literal["evict", "refuse"] = Field(
        "evict", description="At the budget: `evict` the oldest segment, or `refuse` stores and so keep the full life."
    )


class PoolSettings(_Group):
    """The DRAM pool: snapshots."""

    redis_url: SecretStr | None = Field(
        None, description="Redis of the pool (redis://, rediss://, unix://). Without it the pool is in this process."
    )
    key_prefix: str = Field("kvshelf:", min_length=1, max_length=64, description="Prefix of every key in Redis.")
    budget_bytes: int = Field(
        1 * GIB, ge=1 * MIB, le=MAX_BYTES, description="Bytes of the in-process pool. A Redis has its own `maxmemory`."
    )
    ttl_seconds: float = Field(
        300.0, gt=0, le=MAX_SECONDS, description="Life of a snapshot from its last use; 5 min by default."
    )
    timeout_seconds: float = Field(
        0.2, gt=0, le=10, description="Longest wait for Redis in one round; past it the snapshot is a miss."
    )
    request_seconds: float = Field(
        0.25, gt=0, le=60, description="Longest wait of one request for Redis, in all its rounds together."
    )


class LeaseSettings(_Group):
    """Plans and what they hold."""

    ttl_seconds: float = Field(
        60.0, gt=0, le=3600, description="Life of a lease from its last use, unless asked otherwise."
    )
    max_ttl_seconds: float = Field(600.0, gt=0, le=86_400, description="The longest life a caller may ask for.")
    max_leases: int = Field(10_000, ge=1, description="Leases at one time; past it a plan is answered with 503.")
    max_records: int = Field(2_000_000, ge=1, description="Records under lease at one time; past it 503.")
    plan_memory_seconds: float = Field(
        3600.0, gt=0, le=MAX_SECONDS, description="How long a plan's facts are remembered for the stores that name it."
    )
    max_plans: int = Field(100_000, ge=1, description="Plans remembered at one time; the oldest go first.")

    @model_validator(mode="after")
    def _is_within_the_most(self) -> "LeaseSettings":
        if self.ttl_seconds > self.max_ttl_seconds:
            raise ValueError("lease.ttl_seconds must not be above lease.max_ttl_seconds")
        return self


class LimitSettings(_Group):
    """Bounds on what a caller may send."""

    max_prompt_tokens: int = Field(4_194_304, ge=1, description="Longest prompt of a plan, in tokens.")
    max_snapshot_bytes: int = Field(
        1 * GIB, ge=1, description="Largest snapshot a namespace may have, one shard of it."
    )
    max_store_records: int = Field(65_536, ge=1, description="Most frames in one store.")
    max_list_items: int = Field(65_536, ge=1, description="Most keys in one touch or delete, tokens in one self-test.")
    max_json_bytes: int = Field(8 * MIB, ge=1 * KIB, description="Largest JSON body.")
    max_namespaces: int = Field(10_000, ge=1, description="Most namespaces.")


class Settings(BaseSettings):
    """All settings. Build it with :func:`load_settings`."""

    model_config = SettingsConfigDict(
        env_prefix="KVSHELF_", env_nested_delimiter="__", extra="forbid", frozen=True, env_ignore_empty=True
    )

    server: ServerSettings = Field(default_factory=ServerSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    pool: PoolSettings = Field(default_factory=PoolSettings)
    lease: LeaseSettings = Field(default_factory=LeaseSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)


_CONFIG_VARIABLE = "KVSHELF_CONFIG"
_TEST_PREFIX = "KVSHELF_TEST_"


def load_settings(
    path: Path | None = None, flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Merge defaults, the TOML file, the environment and flags; the later ones win, setting by setting.

    Args:
        path: the TOML file; without it ``KVSHELF_CONFIG`` may name one.
        flags: nested settings from the command line, such as ``{"server": {"port": 0}}``.
        environment: the variables to check for unknown names; the process's own by default.

    Raises:
        SettingsError: a file that cannot be read or parsed, an unknown key, or a value out of bounds.
    """
    known_environment = os.environ if environment is None else environment
    chosen = path or (Path(known_environment[_CONFIG_VARIABLE]) if known_environment.get(_CONFIG_VARIABLE) else None)
    document = _read_toml(chosen) if chosen else {}
    _refuse_unknown_variables(known_environment)

    class _Merged(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            """The flags, then the environment, then the file: the first that has a setting wins."""
            return (init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=document))

    try:
        return _Merged(**dict(flags or {}))
    except (ValidationError, PydanticSettingsError) as error:
        raise SettingsError(_explain(error, chosen)) from None


def setting_names() -> list[str]:
    """Every setting as ``group.name``, in the order of the groups."""
    return [
        f"{group}.{name}"
        for group, field in Settings.model_fields.items()
        for name in cast("type[BaseModel]", field.annotation).model_fields
    ]


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the configuration file {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the configuration file {path} is no valid TOML: {error}") from None


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    known = {"KVSHELF_" + name.replace(".", "__").upper() for name in setting_names()} | {_CONFIG_VARIABLE}
    groups = {f"KVSHELF_{group.upper()}" for group in Settings.model_fields}
    known |= groups
    for name in environment:
        if name.upper().startswith("KVSHELF_") and not name.startswith(_TEST_PREFIX) and name.upper() not in known:
            near = difflib.get_close_matches(name.upper(), known - groups, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SettingsError(f"the environment variable {name} names no setting{hint}")


def _hint(name: str) -> str:
    near = difflib.get_close_matches(name, [*setting_names(), *Settings.model_fields], 1)
    return f", did you mean {near[0]}?" if near else ""


def _explain(error: ValidationError | PydanticSettingsError, path: Path | None) -> str:
    if isinstance(error, PydanticSettingsError):
        return str(error)
    where = f" (file {path}, environment and flags together)" if path else ""
    lines = []
    for problem in error.errors(include_input=False, include_url=False):
        name = ".".join(str(part) for part in problem["loc"])
        text = f"unknown setting{_hint(name)}" if problem["type"] == "extra_forbidden" else problem["msg"]
        lines.append(f"{name}: {text.removeprefix('Value error, ')}")
    return f"bad settings{where}: " + "; ".join(lines)
