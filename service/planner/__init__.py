"""The resume plan: from what is cached and what the engine holds to what it loads and where it runs.

``base`` has the words, ``validate`` and ``defaults`` prepare the question, ``candidates`` lists the ways to answer it
and ``choose`` picks one; ``accounts`` and ``provenance`` say what follows from it. All of it is pure: no I/O, no clock.
"""

from service.planner.accounts import plan_document, tokens_by_source
from service.planner.choose import fallback_plan, resume_plan, useful_snapshot_boundaries
from service.planner.defaults import request_for
from service.planner.provenance import Ran, Refusal, judge_store
from service.planner.validate import InvalidRequestError, check_request

__all__ = [
    "InvalidRequestError",
    "Ran",
    "Refusal",
    "check_request",
    "fallback_plan",
    "judge_store",
    "plan_document",
    "request_for",
    "resume_plan",
    "tokens_by_source",
    "useful_snapshot_boundaries",
]
