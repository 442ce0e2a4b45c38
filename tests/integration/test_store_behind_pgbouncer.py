"""Tests of the store contract, run again behind pgbouncer in transaction mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.test_store import (  # noqa: F401 - these tests run again behind the pooler
    books,
    plain,
    test_a_batch_of_results_settles_several_jobs_and_slots_at_once,
    test_a_cancel_ends_the_job_raises_the_fence_and_keeps_the_served_build,
    test_a_claim_takes_the_lease_raises_the_fence_and_counts_the_attempt,
    test_a_completed_build_is_served_and_its_dependents_are_queued,
    test_a_delete_while_running_waits_for_the_lease_and_refuses_the_build,
    test_a_heartbeat_renews_the_lease_and_writes_the_progress,
    test_a_new_owner_gets_a_generation_a_job_and_its_slots,
    test_a_repeat_joins_the_active_job_and_changes_nothing,
    test_a_slot_with_an_expired_lease_is_claimed_with_a_higher_fence,
    test_more_requests_than_fit_in_one_transaction_are_all_answered,
    test_of_many_simultaneous_retries_of_a_clean_up_one_is_accepted,
)
from tests.support.stores import open_test_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.db.connection_options import ConnectionOptions
    from holdfast.engine.store.sql_store import SqlStore
    from tests.support.clock import FakeClock

pytestmark = [pytest.mark.postgres, pytest.mark.proof]


@pytest.fixture
def store(pooled_url: str, pooler_options: ConnectionOptions, clock: FakeClock) -> Iterator[SqlStore]:
    store = open_test_store(pooled_url, clock, connections=pooler_options)
    yield store
    store.close()
