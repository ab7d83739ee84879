"""Every setting: `gogh.toml` first, then GOGH_* from the environment, which wins.

`load()` reads both; an unknown key is refused and the nearest known one is named. Nested keys are
spelt `[section] key` in the file and `GOGH_SECTION__KEY` in the environment. `docs/settings.md` is
generated from the descriptions here (`gogh settings --page`).
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from gogh_core.errors import InvalidSettings

__all__ = [
    "AllocationSettings",
    "ClusterSettings",
    "ContractSettings",
    "CycleSettings",
    "EstimationSettings",
    "GuardSettings",
    "ObjectiveSettings",
    "PrefectSettings",
    "ServiceClass",
    "ServiceSettings",
    "Settings",
    "SimulationSettings",
    "SlurmSettings",
    "SqlSettings",
    "StoreSettings",
    "TelemetrySettings",
    "WebhookSettings",
    "keep_private",
    "load",
    "page",
    "secret_variables",
]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StoreSettings(_Section):
    """Where telemetry, plans and estimates are kept, and for how long."""

    path: Path = Field(
        Path("gogh.duckdb"), description="the database, below `home` unless absolute"
    )
    lock_timeout_s: float = Field(
        90.0, gt=0, description="how long a writer waits for another one before it gives up"
    )
    hot_hours: float = Field(
        6.0, gt=0, description="how long samples stay in the database before they move to Parquet"
    )
    retention_days: float = Field(
        90.0,
        gt=0,
        description="how long samples, plans, observations, the journal and the ledger are kept",
    )
    memory_limit_mb: int = Field(1024, ge=128, description="what DuckDB may use")
    threads: int = Field(2, ge=1, description="threads of DuckDB")


class SqlSettings(_Section):
    """What one query of a person may take (`gogh sql`, `gogh query`)."""

    memory_limit_mb: int = Field(1024, ge=128, description="memory of one query of a person")
    spill_limit_mb: int = Field(
        1024, ge=1, description="disk below `home` for what does not fit in that memory"
    )
    timeout_s: float = Field(60.0, gt=0, description="how long one query of a person may take")
    max_rows: int = Field(1_000_000, ge=1, description="rows of its answer")
    max_mb: int = Field(256, ge=1, description="size of its answer in memory")


class TelemetrySettings(_Section):
    """Where telemetry comes from."""

    spool: Path = Field(
        Path("spool"), description="where agents and jobs leave their files, below `home`"
    )
    agents: list[str] = Field(
        default_factory=list,
        description="users (or uids) whose files in the spool are believed as GOGH's own",
    )
    spool_limit_mb: int = Field(512, gt=0, description="what an agent's spool may take on disk")
    spool_keep_s: float = Field(
        604_800.0,
        ge=3600,
        description="files that were taken in or refused leave the spool after this",
    )
    prometheus_url: str | None = Field(None, description="Prometheus that scrapes a DCGM exporter")
    prometheus_token: SecretStr | None = Field(None, description="bearer token for Prometheus")
    prometheus_ca: Path | None = Field(None, description="CA file for Prometheus over TLS")
    prometheus_delay_s: float = Field(
        15.0, ge=0, description="samples younger than this are left for the next time"
    )
    prometheus_page_s: int = Field(600, gt=0, description="how much time one query spans")
    timeout_s: float = Field(10.0, gt=0, description="time-out of one request")
    retries: int = Field(3, ge=0, description="how often a failed request is tried again")
    late_s: float = Field(3600.0, ge=0, description="rows later than this are kept aside")
    early_s: float = Field(
        86_400.0, ge=0, description="rows ahead of the clock by up to this wait for their time"
    )
    max_age_s: float = Field(
        1800.0, gt=0, description="planning goes on without new data for as long as this"
    )
    warmup_s: float = Field(30.0, ge=0, description="cut from the beginning of each stay")
    sample_period_s: float = Field(1.0, gt=0, description="period of samples")
    max_file_mb: int = Field(4096, gt=0, description="larger files in the spool are refused")
    max_unpacked_mb: int = Field(
        4096, gt=0, description="files that unpack to more than this are refused"
    )
    max_rows: int = Field(
        20_000_000, gt=0, description="files with more rows or lines than this are refused"
    )
    read_limit_s: float = Field(
        120.0, gt=0, description="a file that takes more CPU seconds to read is refused"
    )
    read_memory_mb: int = Field(
        2048, ge=512, description="what the process that reads files may use"
    )


class ContractSettings(_Section):
    """Data contracts."""

    directory: Path | None = Field(
        None, description="suites of your own; those that come with GOGH otherwise"
    )


class EstimationSettings(_Section):
    """The networks."""

    models: Path = Field(Path("models"), description="registry of network versions, below `home`")
    confidence: float = Field(
        0.9, gt=0.5, lt=1.0, description="a promise is planned to hold with this probability"
    )
    retrain_budget_s: float = Field(
        30.0, gt=0, description="emergency stop of retraining P2 in a cycle: rounds end it before"
    )
    half_life_days: float = Field(
        14.0, gt=0, description="old measurements fade with this half-life"
    )
    minimum_feasible: float = Field(
        0.9, ge=0, le=1, description="options less likely to run at all are not planned"
    )


class AllocationSettings(_Section):
    """The integer program."""

    solver: Literal["glpk", "highs"] = Field("glpk", description="solver of the integer program")
    gap: float = Field(0.01, ge=0, le=1, description="asked gap between plan and bound")
    time_limit_s: float = Field(
        60.0, gt=0, description="emergency stop of the whole planning call: work ends it before"
    )
    work_limit: float | None = Field(
        None,
        gt=0,
        description="work of a planning call, about seconds of a quiet core; "
        "empty: half of time_limit_s",
    )
    waiting_penalty_w: float = Field(
        10_000.0, ge=0, description="what a waiting job of priority 1 costs, in watts"
    )
    power_cap_w: float | None = Field(None, gt=0, description="the cluster may not draw more")
    max_moves: int | None = Field(None, ge=0, description="moves allowed in one plan")
    quotas: dict[str, int] = Field(default_factory=dict, description="GPUs an owner may hold")
    share: bool = Field(True, description="whether two jobs may share a GPU")
    boot_s: float = Field(
        0.0, ge=0, description="seconds without promise of a server that is switched on"
    )
    margin: float = Field(
        0.2, ge=0, le=2, description="a new place gives this share more than the promise"
    )
    missed_promise_w: float = Field(
        1000.0, ge=0, description="what a second without its promise costs a job, in watts"
    )
    move_s: float = Field(60.0, ge=0, description="how long a move keeps a job from its work")
    priority_age_s: float = Field(
        3600.0, gt=0, description="a waiting job's priority doubles for each such time it waits"
    )


class ObjectiveSettings(_Section):
    """What plans minimise, and where prices and carbon intensities come from."""

    name: Literal["energy", "watts", "throughput", "cost", "carbon"] = Field(
        "energy", description="what plans minimise, unless a request says otherwise"
    )
    price: str | None = Field(
        None,
        description="price per kWh over time: a file, below `home` unless absolute, or an http(s) "
        "address",
    )
    carbon: str | None = Field(
        None, description="carbon intensity in g/kWh over time: a file or an http(s) address"
    )
    zone: str = Field("UTC", description="time zone of curves that are given by the hour of day")
    horizon_s: float = Field(
        86_400.0,
        ge=0,
        description="best effort without a deadline waits for cheaper hours for so long in all",
    )
    refresh_s: float = Field(3600.0, gt=0, description="a curve is fetched again after this time")
    allow: list[str] = Field(
        default_factory=list,
        description="networks that the addresses' hosts may resolve to, and then no others; "
        "link-local and metadata addresses only if listed",
    )
    timeout_s: float = Field(10.0, gt=0, description="time-out of a whole exchange")


class ServiceClass(_Section):
    """What the operator grants some owners; whatever their jobs declare beyond counts as this."""

    owners: tuple[str, ...] = Field((), description="who has it")
    level: int = Field(
        0, ge=0, description="jobs of a lower level may be stopped for those of a higher one"
    )
    max_priority: float = Field(5.0, gt=0, le=1e6, description="highest priority that counts")
    max_step_worth: float = Field(
        4.0, ge=0, le=1e6, description="worth of a step, in energies of its cheapest one, at most"
    )
    max_move_cost_j: float = Field(
        1e7, ge=0, le=1e12, description="highest cost of a move that counts"
    )


class ServiceSettings(_Section):
    """How much of what jobs declare counts: priorities, worth, cost of moves."""

    max_priority: float = Field(
        5.0, gt=0, le=1e6, description="highest priority that counts; more is taken as this"
    )
    max_step_worth: float = Field(
        4.0,
        ge=0,
        le=1e6,
        description="a step is worth at most so many times the energy of its cheapest one",
    )
    max_move_cost_j: float = Field(
        1e7, ge=0, le=1e12, description="highest cost of a move that counts"
    )
    classes: dict[str, ServiceClass] = Field(
        default_factory=dict,
        description="classes of service by name: `owners`, `level`, and others of the three above",
    )

    def of(self, owner: str) -> ServiceClass:
        """The owner's class: the highest of those that name it, or the default at level 0."""
        mine = [one for one in self.classes.values() if owner in one.owners]
        best = max(mine, key=lambda one: (one.level, one.max_priority), default=ServiceClass())
        limits = ("max_priority", "max_step_worth", "max_move_cost_j")
        inherited = {n: getattr(self, n) for n in limits if n not in best.model_fields_set}
        return best.model_copy(update=inherited)


class SlurmSettings(_Section):
    """Slurm as cluster manager."""

    partition: str | None = Field(None, description="jobs in this partition opt in")
    timeout_s: float = Field(10.0, gt=0, description="time-out of each Slurm command")
    bin: Path | None = Field(None, description="folder of squeue, sinfo and scontrol")
    conf: Path | None = Field(None, description="SLURM_CONF, when not the default")
    action_timeout_s: float = Field(
        120.0, gt=0, description="how long a placement, move or switch may take to come true"
    )


class WebhookSettings(_Section):
    """A site's own endpoint for plans."""

    url: str | None = Field(None, description="each plan is posted there")
    secret: SecretStr | None = Field(
        None, description="key of the signature (Standard Webhooks): `whsec_` and base64"
    )
    allow: list[str] = Field(
        default_factory=list,
        description="networks that the url's host may resolve to, and then no others; link-local "
        "and metadata addresses only if listed",
    )
    timeout_s: float = Field(10.0, gt=0, description="time-out of a whole exchange")
    retries: int = Field(4, ge=0, description="how often a failed request is tried again")


class GuardSettings(_Section):
    """What a plan may not do without a person."""

    dry_run: bool = Field(False, description="plans are made and stored, nothing is sent")
    max_moves: int = Field(1000, ge=0, description="moves and stops carried out per cycle at most")
    max_switches: int = Field(1000, ge=0, description="servers switched per cycle at most")
    min_runtime_s: float = Field(
        600.0, ge=0, description="a job that gets its promise is not moved before it ran this long"
    )
    cooldown_s: float = Field(
        1200.0, ge=0, description="a job that gets its promise is not moved again within this time"
    )
    max_disruptions_per_day: int = Field(
        6, ge=1, description="a job moved and stopped this often in 24 h stays where it is"
    )
    max_owner_share: float = Field(
        1.0, gt=0, le=1, description="share of an owner's running jobs that move or stop at once"
    )
    approve_moves: int | None = Field(
        None, ge=0, description="plans with more moves wait for a person's approval"
    )
    approve_stops: int = Field(
        2, ge=0, description="plans that stop more running jobs wait for a person's approval"
    )
    approve_stop_share: float = Field(
        0.1, ge=0, le=1, description="stops up to this share of the running jobs need no approval"
    )
    approval_timeout_s: float = Field(
        900.0, gt=0, description="a plan not approved by then is rejected"
    )
    max_stale_share: float = Field(
        0.5, gt=0, le=1, description="a plan of which more no longer fits is abandoned"
    )


class ClusterSettings(_Section):
    """Which cluster manager, and how boldly."""

    manager: Literal["simulated", "slurm", "files"] = Field(
        "simulated", description="the cluster manager"
    )
    mode: Literal["auto", "advise", "act"] = Field(
        "auto", description="`auto` acts on the embedded cluster and only advises on a real one"
    )
    plans: Path = Field(Path("plans"), description="where plan files are written, below `home`")
    server_base_w: float = Field(
        200.0, ge=0, description="base draw of a server whose own is not declared"
    )
    server_base_w_by_type: dict[str, float] = Field(
        default_factory=dict, description="the same by GPU type"
    )


class CycleSettings(_Section):
    """The cadence."""

    window_s: int = Field(300, ge=10, description="length of a window, and so of the cadence")
    budget_s: float = Field(240.0, gt=0, description="time a whole cycle may take")
    step_budget_s: float = Field(120.0, gt=0, description="time one step may take")


class PrefectSettings(_Section):
    """Prefect's server and worker as `gogh up` starts them."""

    host: str = Field("127.0.0.1", description="address the server binds to")
    port: int = Field(4200, gt=0, lt=65536, description="port of server and UI")
    pool: str = Field("gogh", description="name of the work pool")
    auth: SecretStr | None = Field(
        None, description="`user:password` for Prefect's API; `gogh up` makes one otherwise"
    )
    authentication: bool = Field(
        True, description="false: no password, every local user rules GOGH; `act` refuses to start"
    )
    database_url: SecretStr | None = Field(
        None, description="PostgreSQL for Prefect; SQLite below `home` otherwise"
    )
    runs_per_worker: int = Field(4, gt=0, description="flow runs one worker starts at once")
    metrics_port: int | None = Field(
        None, gt=0, lt=65536, description="port of GOGH's own metrics for Prometheus"
    )
    damper_s: float = Field(
        60.0, ge=0, description="a storm of events gives one replan in this time"
    )
    url: str | None = Field(
        None, description="API of a server elsewhere; `gogh up` then starts workers only"
    )
    workers: int = Field(1, gt=0, description="workers `gogh up` starts on this machine")
    urgent_priority: float = Field(
        5.0, gt=0, description="a waiting job of this priority or more is an event"
    )
    slo_missed_s: float = Field(
        600.0, gt=0, description="a promise missed for as long as this is an event"
    )

    @property
    def api_url(self) -> str:
        """The address of Prefect's API."""
        if self.url:
            return self.url.rstrip("/")
        host = "127.0.0.1" if self.host == "0.0.0.0" else self.host  # noqa: S104
        return f"http://{host}:{self.port}/api"

    @property
    def guarded(self) -> bool:
        """Whether these settings give the API a password: set here, or made by `gogh up`."""
        return self.authentication and (self.auth is not None or self.url is None)

    def run_page(self, run_id: str) -> str:
        """The address of one run in the UI."""
        return f"{self.api_url.removesuffix('/api')}/runs/flow-run/{run_id}"


class SimulationSettings(_Section):
    """The embedded cluster."""

    servers: int = Field(12, gt=0, description="servers of the embedded cluster")
    jobs_per_hour: float = Field(36.0, gt=0, description="mean arrivals")
    garbage_rate: float = Field(0.002, ge=0, le=1, description="share of telemetry rows made bad")
    gap_rate: float = Field(0.002, ge=0, le=1, description="share of telemetry rows lost")
    late_rate: float = Field(
        0.005, ge=0, le=1, description="share of telemetry rows that come late"
    )
    throughput_table: Path | None = Field(None, description="a throughput table as ground truth")
    power_table: Path | None = Field(None, description="a power table beside it")
    start: datetime = Field(
        datetime.fromisoformat("2026-01-05T09:00:00+00:00"), description="where its clock begins"
    )
    seed: int = Field(0, ge=0, description="seed of everything random")


class _File(PydanticBaseSettingsSource):
    """What stands in gogh.toml."""

    def __init__(self, settings_cls: type[BaseSettings], raw: Mapping[str, Any]) -> None:
        super().__init__(settings_cls)
        self._raw = dict(raw)

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self._raw.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self._raw


class Settings(BaseSettings):
    """All of GOGH's settings."""

    model_config = SettingsConfigDict(
        env_prefix="GOGH_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    home: Path = Field(Path(".gogh"), description="folder of everything GOGH keeps")
    umask: str = Field(
        "077",
        pattern="^[0-7]{3}$",
        description="rights that nobody else gets on home and the files below it; `066` lets job "
        "owners through to their spool folders, `027` lets the group read",
    )
    data: Path | None = Field(None, description="folder of measurements for benchmarks and tests")
    store: StoreSettings = StoreSettings()
    sql: SqlSettings = SqlSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    contracts: ContractSettings = ContractSettings()
    estimation: EstimationSettings = EstimationSettings()
    allocation: AllocationSettings = AllocationSettings()
    objective: ObjectiveSettings = ObjectiveSettings()
    service: ServiceSettings = ServiceSettings()
    cluster: ClusterSettings = ClusterSettings()
    slurm: SlurmSettings = SlurmSettings()
    webhook: WebhookSettings = WebhookSettings()
    guards: GuardSettings = GuardSettings()
    cycle: CycleSettings = CycleSettings()
    prefect: PrefectSettings = PrefectSettings()
    simulation: SimulationSettings = SimulationSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What is passed wins over the environment, which wins over the file."""
        return init_settings, env_settings, _File(settings_cls, _current_file)

    @property
    def umask_bits(self) -> int:
        """`umask` as a number."""
        return int(self.umask, 8)

    def below_home(self, path: Path) -> Path:
        """A path of the settings, made absolute."""
        return path if path.is_absolute() else (self.home / path).absolute()

    @property
    def database(self) -> Path:
        """The database file."""
        return self.below_home(self.store.path)

    @property
    def spool(self) -> Path:
        """The spool folder."""
        return self.below_home(self.telemetry.spool)

    @property
    def models(self) -> Path:
        """The registry of network versions."""
        return self.below_home(self.estimation.models)

    @property
    def plans(self) -> Path:
        """The folder of plan files."""
        return self.below_home(self.cluster.plans)


_current_file: Mapping[str, Any] = {}

# Variables that belong to the project but are no settings.
_NOT_SETTINGS = {"GOGH_CONFIG", "GOGH_E2E", "GOGH_SCREENSHOTS", "GOGH_STACK"}


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, info in model.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _keys(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", info


def _check_environment(environment: Mapping[str, str]) -> None:
    known = {f"GOGH_{key.replace('.', '__').upper()}" for key, _ in _keys(Settings)}
    sections = {f"GOGH_{name.upper()}" for name in Settings.model_fields}
    for variable in environment:
        upper = variable.upper()
        if not upper.startswith("GOGH_") or upper in _NOT_SETTINGS:
            continue
        if upper not in known and upper not in sections:
            raise InvalidSettings(
                f"{variable} is no setting", where="environment", todo=_near(upper, known)
            )


def _near(name: str, known: set[str]) -> str:
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.4)
    return f"did you mean {found[0]}?" if found else "`gogh settings` lists them all"


def load(config: Path | None = None, **overrides: Any) -> Settings:
    """The settings from `config` (GOGH_CONFIG, or ./gogh.toml where there is one) and GOGH_*."""
    global _current_file
    named = config or (Path(os.environ["GOGH_CONFIG"]) if "GOGH_CONFIG" in os.environ else None)
    path = named or Path("gogh.toml")
    raw: dict[str, Any] = {}
    if named is not None or path.exists():
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidSettings(f"cannot be read: {error.strerror}", where=str(path)) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidSettings(f"is not TOML: {error}", where=str(path)) from error
    _check_environment(os.environ)
    _current_file = raw
    try:
        found = Settings(**overrides)
    except ValidationError as error:
        raise _translated(error, path if raw else None) from error
    finally:
        _current_file = {}
    if _private:
        os.umask(found.umask_bits)
    return found


_private = False


def keep_private() -> None:
    """From here on this process makes files with the umask of the settings (077 until read).

    For the entries of whole programs; a library leaves its caller's umask alone.
    """
    global _private
    _private = True
    os.umask(0o077)


def secret_variables() -> dict[str, str]:
    """Every setting that is a secret, with its variable in the environment."""
    return {
        key: f"GOGH_{key.replace('.', '__').upper()}"
        for key, info in _keys(Settings)
        if SecretStr in (info.annotation, *get_args(info.annotation))
    }


def _translated(error: ValidationError, path: Path | None) -> InvalidSettings:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    where = str(path) if path else "settings"
    if first["type"] == "extra_forbidden":
        known = {name for name, _ in _keys(Settings)}
        return InvalidSettings(f"{key} is no setting", where=where, todo=_near(key, known))
    return InvalidSettings(f"{key}: {first['msg']}", where=where, todo="`gogh settings` tells more")


def page() -> str:
    """The page of all settings, for docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "`gogh.toml` in the current folder (or where GOGH_CONFIG points), then the environment, "
        "which wins. Generated by `gogh settings --page`.",
        "",
        "| key | variable | default | meaning |",
        "|---|---|---|---|",
    ]
    for key, info in _keys(Settings):
        variable = f"GOGH_{key.replace('.', '__').upper()}"
        default = info.get_default(call_default_factory=True)
        shown = "" if default is None else f"`{default}`"
        choices = [a for a in get_args(info.annotation) if isinstance(a, str)]
        meaning = info.description or ""
        if choices:
            meaning += f" ({', '.join(f'`{choice}`' for choice in choices)})"
        lines.append(f"| `{key}` | `{variable}` | {shown} | {meaning} |")
    return "\n".join(lines) + "\n"
