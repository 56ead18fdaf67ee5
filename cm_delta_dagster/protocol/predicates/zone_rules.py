"""Local times as instants, and where the rules of zones are uncertain (protocol heading "Partition Value Serialization").

Spark takes the rules from the JDK, Python and pyarrow from the operating system or from the package ``tzdata``. For times before
1970 these differ in some zones: one has the history of each city, another that of a neighbour (Stockholm that of Berlin). This
module converts no such time, so that no condition selects other rows than Spark.
"""

import datetime as dt

from cm_delta_dagster.protocol.predicates.sql_functions import words
from cm_delta_dagster.protocol.predicates.timestamps import DeferredZone

_EPOCH = dt.datetime(1970, 1, 1)
_CYCLE_YEARS = 400
"""After so many years dates and weekdays repeat, and with them the rules of a zone."""
_LONG_AFTER = 2400
_DAY_MICROS = 86_400_000_000
_CYCLE_MICROS = 146_097 * _DAY_MICROS
_LAST_YEAR_MICROS = (dt.datetime(_LONG_AFTER + _CYCLE_YEARS, 1, 1) - _EPOCH) // dt.timedelta(microseconds=1)
_FIRST = dt.datetime(1, 1, 2)
_FIRST_MICROS = (_FIRST - _EPOCH) // dt.timedelta(microseconds=1)

DISPUTED_BEFORE_1900 = words(
    """
    Africa/Accra Africa/Addis_Ababa Africa/Asmara Africa/Bamako Africa/Bangui Africa/Banjul Africa/Blantyre
    Africa/Brazzaville Africa/Bujumbura Africa/Conakry Africa/Dakar Africa/Dar_es_Salaam Africa/Djibouti Africa/Douala
    Africa/Freetown Africa/Gaborone Africa/Harare Africa/Kampala Africa/Kigali Africa/Kinshasa Africa/Libreville
    Africa/Lome Africa/Luanda Africa/Lubumbashi Africa/Lusaka Africa/Malabo Africa/Maseru Africa/Mbabane
    Africa/Mogadishu Africa/Niamey Africa/Nouakchott Africa/Ouagadougou Africa/Porto-Novo America/Anguilla
    America/Antigua America/Aruba America/Atikokan America/Blanc-Sablon America/Cayman America/Creston America/Curacao
    America/Dominica America/Grenada America/Guadeloupe America/Montserrat America/Nassau America/Port_of_Spain
    America/St_Kitts America/St_Lucia America/St_Thomas America/St_Vincent America/Tortola Antarctica/DumontDUrville
    Antarctica/McMurdo Antarctica/Syowa Asia/Aden Asia/Bahrain Asia/Brunei Asia/Kuala_Lumpur Asia/Kuwait Asia/Muscat
    Asia/Phnom_Penh Asia/Vientiane Atlantic/Reykjavik Atlantic/St_Helena CET CST6CDT EET EST5EDT Europe/Amsterdam
    Europe/Copenhagen Europe/Guernsey Europe/Isle_of_Man Europe/Jersey Europe/Ljubljana Europe/Luxembourg Europe/Monaco
    Europe/Oslo Europe/Sarajevo Europe/Skopje Europe/Stockholm Europe/Vaduz Europe/Zagreb Indian/Antananarivo
    Indian/Christmas Indian/Cocos Indian/Comoro Indian/Kerguelen Indian/Mahe Indian/Mayotte Indian/Reunion MET MST7MDT
    PST8PDT Pacific/Chuuk Pacific/Funafuti Pacific/Majuro Pacific/Midway Pacific/Pohnpei Pacific/Saipan Pacific/Wake
    Pacific/Wallis WET
    """
)
"""Zones of which JDK 17, Debian 12 and the package tzdata 2026 do not have the same rules before 1900."""
DISPUTED_ZONES = DISPUTED_BEFORE_1900 | words(
    """
    America/Araguaina America/Bahia America/Belem America/Boa_Vista America/Campo_Grande America/Cuiaba America/Eirunepe
    America/Ensenada America/Fortaleza America/Maceio America/Manaus America/Noronha America/Porto_Acre
    America/Porto_Velho America/Recife America/Rio_Branco America/Santa_Isabel America/Santarem America/Sao_Paulo
    America/Tijuana Brazil/Acre Brazil/DeNoronha Brazil/East Brazil/West Eire Europe/Dublin Mexico/BajaNorte
    """
)
"""Zones of which they do not have the same rules before 1970."""


class DisputedTimeError(ValueError):
    """A local time before 1970 in one of :data:`DISPUTED_ZONES`."""

    def __init__(self, zone: str) -> None:
        super().__init__(f"The rules of the time zone {zone} before 1970 differ between Spark and Python")
        self.zone = zone


def instant_micros(local: int, zone: dt.tzinfo) -> int:
    """Microseconds since the epoch of a local time, in any year; in a gap or an overlap the one that Spark takes.

    Args:
        local: microseconds from 1970-01-01 00:00 to the local time.

    Raises:
        DisputedTimeError: the time is before 1970, and the rules of the zone differ between sources.
    """
    if zone is dt.UTC:
        return local
    if local < _DAY_MICROS and (name := region_name(zone)) in DISPUTED_ZONES:
        raise DisputedTimeError(str(name))
    shifted = local
    if local >= _LAST_YEAR_MICROS:
        shifted -= ((local - _LAST_YEAR_MICROS) // _CYCLE_MICROS + 1) * _CYCLE_MICROS
    moment = _EPOCH + dt.timedelta(microseconds=max(shifted, _FIRST_MICROS))
    offset = moment.replace(tzinfo=zone).utcoffset() or dt.timedelta(0)
    return local - offset // dt.timedelta(microseconds=1)


def region_name(zone: dt.tzinfo) -> str | None:
    """The name of a zone that is a region, e.g. ``Europe/Berlin``; None for a fixed offset."""
    inner = zone.zone if isinstance(zone, DeferredZone) else zone
    name = getattr(inner, "key", None) or getattr(inner, "zone", None)  # Of zoneinfo, and of pytz.
    return name if isinstance(name, str) else None
