"""All trials, the longest first, so that several at a time are done soonest."""

from tests.load.soak import calls, client_trouble, frames, kills, load, machine, outages, simulation
from tests.load.soak.base import Trial

TRIALS: tuple[Trial, ...] = (
    outages.TRIAL,
    client_trouble.TRIAL,
    load.TRIAL,
    simulation.TRIAL,
    machine.TRIAL,
    kills.TRIAL,
    frames.TRIAL,
    calls.TRIAL,
)
