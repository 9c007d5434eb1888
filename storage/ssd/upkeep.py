"""Small writes that readers leave to the writer: touches into the index, damaged records out of it."""

from storage.ssd.batch import Batch, Dropped
from storage.ssd.core import Core
from storage.ssd.quarantine import note_of
from storage.ssd.repair import rebuild_accounts
from storage.ssd.rows import USED

_TOUCHES_PER_COMMIT = 4096


def write_touches(core: Core) -> bool:
    """Put a batch of touches into the index; True when there may be more.

    Raises:
        lmdb.Error: the index could not be written; the touches are kept.
    """
    touches = core.touches.oldest(_TOUCHES_PER_COMMIT)
    if not touches:
        return False
    with Batch(core.index) as batch:
        for id_bytes, used_at in touches:
            slot = batch.get(id_bytes)
            if slot is not None and slot.last_used_at <= used_at:
                batch.update(id_bytes, slot._replace(last_used_at=used_at, flags=slot.flags | USED))
        batch.commit()
    core.touches.written(touches)
    return len(touches) == _TOUCHES_PER_COMMIT


def try_medium(core: Core) -> None:
    """After trouble with the medium, see whether it is over: write, sync, commit, and read the index.

    Raises:
        OSError: no file can be written.
        lmdb.Error: the index cannot be written.
    """
    medium = core.medium
    medium.look_for_space()
    if medium.unwritable is None and medium.unreadable is None:
        return
    core.files.probe()
    with Batch(core.index) as batch:
        batch.commit()
    core.index.sync()
    medium.written()
    if not medium.bad_in_a_row:
        medium.read_well()


def drop_quarantined(core: Core) -> None:
    """Take what readers found damaged out of the index.

    Raises:
        lmdb.Error: the index could not be written; the notes are kept.
    """
    notes = core.quarantine.all()
    if notes:
        with Batch(core.index) as batch:
            for id_bytes, note in notes:
                slot = batch.get(id_bytes)
                if slot is not None and note_of(slot) == note:
                    batch.drop(id_bytes, slot, "corrupt")
            batch.commit()
        core.report(batch.dropped)
        core.quarantine.done(notes)
    if core.index.is_damaged:
        repair(core)


def repair(core: Core, sizes: dict[int, int] | None = None) -> list[Dropped]:
    """Rebuild the accounts, and report what was lost.

    Raises:
        lmdb.Error: the index could not be written.
    """
    dropped = rebuild_accounts(core.index, sizes)
    core.report(dropped)
    core.medium.notice("index_repaired", records=core.index.segments.live_records, lost=len(dropped))
    return dropped
