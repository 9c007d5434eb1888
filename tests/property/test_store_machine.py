"""The state machine of the whole store, for a few programs; the soak runs many."""

from hypothesis import settings

from tests.property.store_machine import StoreMachine

TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=15, stateful_step_count=40)
