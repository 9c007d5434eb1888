"""From panels to Grafana's dashboard JSON."""

from typing import Any

from deploy.watch.panels import Dashboard, Panel

_COLUMNS, _HEIGHT, _STAT_HEIGHT = 24, 8, 4
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_SCHEMA = 39


def dashboard_json(dashboard: Dashboard) -> dict[str, Any]:
    """One dashboard, laid out row by row."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["kvshelf"],
        "schemaVersion": _SCHEMA,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_datasource(), _instances()]},
        "panels": _laid_out(dashboard),
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _instances() -> dict[str, Any]:
    return {
        "name": "instance",
        "label": "Node",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": "label_values(kvshelf_build_info, instance)", "refId": "instance"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _laid_out(dashboard: Dashboard) -> list[dict[str, Any]]:
    placed: list[dict[str, Any]] = []
    y = 0
    for title, panels in dashboard.rows:
        placed.append({"id": len(placed) + 1, "type": "row", "title": title, "gridPos": _place(0, y, _COLUMNS, 1)})
        x, y, height = 0, y + 1, 0
        for panel in panels:
            if x + panel.width > _COLUMNS:
                x, y = 0, y + height
            height = _STAT_HEIGHT if panel.kind == "stat" else _HEIGHT
            placed.append(_panel(panel, len(placed) + 1, _place(x, y, panel.width, height)))
            x += panel.width
        y += height
    return placed


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "fillOpacity": 30 if panel.is_stacked else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.is_stacked else "none"},
        }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            for index, (expr, legend) in enumerate(panel.queries)
        ],
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    return {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "auto"}
