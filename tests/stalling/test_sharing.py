"""What k trials get, from what a sample costs: pure arithmetic, checked against cases that can be done by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stalling.made_up import measured
from tsnb.stalling.sharing import Computing, Loading, Way, foretell, with_workers

seconds = st.floats(1e-6, 1e-1)


def test_where_the_cores_are_all_that_limits_it_is_the_papers_quotient() -> None:
    """k(p + c)/(p + kc), for the p and c of a loader and a model that fill the cores."""
    found = measured(prepare_ms=3, compute_ms=1, workers=4).sharing(4)
    assert found.separate.limit == found.shared.limit == "cores"
    assert found.gain == pytest.approx(4 * (3 + 1) / (3 + 4 * 1))
    assert found.separate.samples_per_s == pytest.approx(2 * 1000 / (4 * (3 + 1)))
    assert found.separate.cores == found.shared.cores == pytest.approx(2)


def test_with_cores_to_spare_the_model_decides_and_sharing_gains_nothing() -> None:
    """64 cores hold four loaders as well as one; what remains is the CPU that is saved."""
    found = measured(prepare_ms=1, compute_ms=2, workers=1, cores=64).sharing(4)
    assert found.separate.limit == found.shared.limit == "model"
    assert found.gain == 1
    assert found.cpu_saved == pytest.approx(1 - (1 + 4 * 2) / (4 * (1 + 2)))


def test_a_loader_without_workers_takes_turns_with_the_model_until_it_is_served() -> None:
    """In the training process nothing overlaps; in a producer it does."""
    found = measured(prepare_ms=1, compute_ms=1, workers=0, cores=8, stalled=0.5).sharing(1)
    assert found.separate.samples_per_s == pytest.approx(500)
    assert found.shared.samples_per_s == pytest.approx(1000)


def test_one_trial_is_told_as_it_was_measured_and_several_are_not_faster() -> None:
    """What waking up costs is no CPU time: it is in what was measured; a smaller machine is calculated all the same."""
    step = Computing(0.001, 0.001)
    way = Way(Loading(wall_s=0.0005, cpu_s=0.0005, taking_s=0.0, workers=1), step, one_s=0.002)
    found = foretell(1, way, way, cores=8)
    assert found.separate.samples_per_s == found.shared.samples_per_s == pytest.approx(500)
    assert foretell(3, way, way, cores=8).shared.samples_per_s == pytest.approx(500)
    assert foretell(1, way, way, cores=0.5).shared.samples_per_s == pytest.approx(0.5 * 1000 / 1.5)
    faster = replace(way, one_s=0.0008)  # than the sum of its parts: the measured one is right
    assert foretell(1, faster, faster, cores=8).separate.samples_per_s == pytest.approx(1250)
    assert with_workers(way, 2).one_s == 0


def test_trials_on_one_gpu_share_it() -> None:
    """Four trials on one GPU are a quarter as fast, however many cores there are."""
    found = measured(prepare_ms=0.1, compute_ms=1, cores=64, device=True).sharing(4)
    assert found.shared.limit == "device"
    assert found.shared.samples_per_s == pytest.approx(250)


def test_fewer_cores_than_this_machine_has_can_be_asked_for() -> None:
    """`cores=` answers for another machine, or for what others leave of this one."""
    told = measured(prepare_ms=3, compute_ms=1, workers=4, cores=8)
    assert told.sharing(4, cores=2) == measured(prepare_ms=3, compute_ms=1, workers=4, cores=2).sharing(4)


def test_two_workers_are_twice_as_fast_until_the_batches_are_taken_no_faster() -> None:
    """What one thread must do for each sample does not become faster by workers."""
    slow = Way(Loading(wall_s=0.004, cpu_s=0.004, taking_s=0.001, workers=1))
    assert with_workers(slow, 2).loading.wall_s == pytest.approx(0.002)
    assert with_workers(slow, 100).loading.wall_s == pytest.approx(0.001)
    moved = with_workers(Way(Loading(wall_s=0.004, cpu_s=0.0, taking_s=0.004, workers=0)), 1).loading
    assert (moved.wall_s, moved.cpu_s, moved.taking_s) == (0.004, 0.004, 0.0)


@pytest.mark.parametrize(("trials", "cores"), [(0, 2.0), (1, 0.0), (-1, 1.0)])
def test_numbers_that_mean_nothing_are_refused(trials: int, cores: float) -> None:
    """Neither no trial nor no core."""
    with pytest.raises(ValueError, match=r"a number of (trials|cores)"):
        measured().sharing(trials, cores=cores)
    with pytest.raises(ValueError, match="a number of worker processes"):
        measured().with_workers(0)


@given(seconds, seconds, seconds, st.integers(1, 16), st.integers(0, 8), st.floats(0.5, 64))
def test_sharing_never_loses_and_never_gains_more_than_the_number_of_trials(
    prepare: float, taking: float, compute: float, trials: int, workers: int, cores: float
) -> None:
    """With the same costs on both sides; and nobody uses more cores than there are."""
    loading = Loading((prepare + taking) / max(1, workers), prepare, taking, workers)
    way = Way(loading, Computing(compute, compute))
    found = foretell(trials, way, way, cores)
    most = trials if workers else trials + 1  # without workers, sharing also lets the two overlap
    assert 1 - 1e-9 <= found.gain <= most + 1e-9
    assert max(found.separate.cores, found.shared.cores) <= cores * (1 + 1e-9)
    more = foretell(trials + 1, way, way, cores)
    assert more.separate.samples_per_s <= found.separate.samples_per_s * (1 + 1e-9)
    assert more.shared.samples_per_s <= found.shared.samples_per_s * (1 + 1e-9)


def test_the_table_has_each_number_with_its_own_interval_and_unit() -> None:
    """A gain is told in times, and the CPU time that is saved as a share."""
    found = replace(
        measured(prepare_ms=3, compute_ms=1, workers=4).sharing(4),
        gain_interval=(2.0, 2.5),
        cpu_saved_interval=(0.5, 0.6),
    )
    rows = [line.split() for line in repr(found).splitlines()]
    assert ["gain", "2.3x", "2.0x", "to", "2.5x"] in rows
    assert ["CPU", "saved", "56%", "50%", "to", "60%"] in rows


@pytest.mark.parametrize(("trials", "head"), [(1, "One trial:"), (4, "4 equal trials at once:")])
def test_the_table_begins_with_how_many_trials_it_is_about(trials: int, head: str) -> None:
    """In a terminal and in a notebook."""
    found = measured(prepare_ms=3, compute_ms=1, workers=4).sharing(trials)
    assert repr(found).startswith(f"{head}\n") and found._repr_html_().startswith(f"<p>{head}</p>")
