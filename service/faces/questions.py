"""What callers ask, as fields with bounds, whatever face they come through."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.faces.problems import MAX_MESSAGE_CHARACTERS, ProblemError, problem_of_fields


class NamespaceQuestion(BaseModel):
    """Everything that makes two KV bytes interchangeable."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tenant: str | None = Field(
        None, min_length=1, max_length=64, description="Whose KV it is: the token's tenant; without tokens, `default`."
    )
    model: str = Field(min_length=1, max_length=256, description="The model's name.")
    weights_revision: str = Field("", max_length=256, description="The revision of the weights.")
    profile: str | dict[str, Any] = Field(description="A profile's id, or a profile written out.")
    bytes_per_token: int | None = Field(
        None, ge=1, description="For load tests: a miniature of the profile with so many global bytes a token."
    )
    block_tokens: int = Field(128, ge=1, le=65_536, description="Tokens a block.")
    hash_scheme: str = Field("kvshelf-sha256", description="`kvshelf-sha256`, or the name of the engine's own scheme.")
    hash_block_tokens: int | None = Field(
        None, ge=1, description="Tokens a hash of the engine's own scheme; a divisor of block_tokens."
    )
    salt: str = Field("", max_length=256, description="Keeps namespaces apart that are equal in all else.")
    shards: int = Field(
        1, ge=1, le=1024, description="Tensor-parallel ranks that hold different bytes; 1 when replicated."
    )


class PlanQuestion(BaseModel):
    """What a plan is asked with beside the prompt. What is left out takes the default of the namespace's profile."""

    request_id: str | None = Field(
        None,
        min_length=1,
        max_length=128,
        description="The name of the request, unlike that of any other: its tokens are counted once a name.",
    )
    prompt_tokens: int | None = Field(None, description="The prompt's length; needed with raw hashes.")
    hbm_tokens: int = Field(0, ge=0, description="Tokens the engine already holds.")
    hbm_exact_tokens: int | None = Field(None, ge=0, description="How many of them are exact.")
    hbm_state: bool = Field(False, description="Whether the engine can itself resume at hbm_tokens.")
    allow_approximate: bool | None = Field(None, description="Whether a plan may be other than exact.")
    supports: str | None = Field(
        None, max_length=128, description="Comma-separated: snapshot, bounded_replay, exact_rebuild."
    )
    max_load_bytes_per_saved_token: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="Drop plans that cost more to load than this."
    )
    lease_ttl_seconds: float | None = Field(
        None, ge=0.001, allow_inf_nan=False, description="Life of the lease from its last use."
    )


Q = TypeVar("Q", bound=BaseModel)


def checked(question: type[Q], fields: Mapping[str, Any]) -> Q:
    """A question of plain fields; raises a 422 that names every field that is wrong."""
    try:
        return question.model_validate(fields)
    except ValidationError as error:
        raise problem_of_validation(error) from None


def problem_of_validation(error: ValidationError, place: str = "") -> ProblemError:
    """A 422 that names every field that is wrong, each behind its ``place``."""
    fields = [
        {"field": place + _name(problem["loc"]), "message": problem["msg"][:MAX_MESSAGE_CHARACTERS]}
        for problem in error.errors(include_input=False, include_url=False, include_context=False)
    ]
    return problem_of_fields(fields)


def _name(location: tuple[int | str, ...]) -> str:
    """A field's path, without the names of the alternatives of a union that the model library puts in."""
    return ".".join(str(part) for part in location if part != "str" and "[" not in str(part))
