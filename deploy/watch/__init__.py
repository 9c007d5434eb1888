"""The code that makes the Grafana dashboards and the Prometheus rules: `python -m deploy.watch` runs it."""
