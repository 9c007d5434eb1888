"""Tests, and what is measured and tried for longer (``tests/load``)."""

import logging

import structlog

# A service in a process of these says as much as one in its own does by default.
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
