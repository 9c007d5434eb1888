"""Every setting of the service. One group a module; :mod:`service.settings.load` merges the sources."""

from service.settings.access import AccessSettings, SharedNamespace, TenantSettings
from service.settings.base import GIB, KIB, MAX_BYTES, MAX_SECONDS, MIB
from service.settings.encryption import EncryptionSettings
from service.settings.grpc import GrpcSettings
from service.settings.lease import LeaseSettings
from service.settings.limits import LimitSettings
from service.settings.load import SHARED_SHELF, Settings, SettingsError, load_settings, setting_names
from service.settings.local import LocalSettings
from service.settings.pool import PoolSettings
from service.settings.scrub import ScrubSettings
from service.settings.server import ServerSettings
from service.settings.store import StoreSettings
from service.settings.tls import TlsSettings

__all__ = [
    "GIB",
    "KIB",
    "MAX_BYTES",
    "MAX_SECONDS",
    "MIB",
    "ServerSettings",
    "GrpcSettings",
    "StoreSettings",
    "PoolSettings",
    "LeaseSettings",
    "LimitSettings",
    "LocalSettings",
    "SHARED_SHELF",
    "AccessSettings",
    "ScrubSettings",
    "EncryptionSettings",
    "SharedNamespace",
    "TenantSettings",
    "Settings",
    "TlsSettings",
    "SettingsError",
    "load_settings",
    "setting_names",
]
