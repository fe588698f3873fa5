"""Tests with limits of device memory. The names say how each must end."""

import unittest

import pytest
import ttnn

TILE, BF16, DRAM, L1 = ttnn.TILE_LAYOUT, ttnn.bfloat16, ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG
kept = []


@pytest.fixture
def weights(device):
    """What a fixture has is not counted."""
    return [allocate(device, 8) for _ in range(4)]


def allocate(device, tiles, memory=DRAM):
    # A tile has 2 KiB, and allocates as much in each of 12 banks.
    return ttnn.empty(ttnn.Shape((32 * 12 * tiles, 32)), BF16, TILE, device, memory)


@pytest.mark.limit_device_memory("1 MiB")
def test_peak_below_its_limit_passes(device, weights):
    ttnn.deallocate(allocate(device, 32))


@pytest.mark.limit_device_memory("1 MiB")
def test_peak_above_its_limit_fails(device, weights):
    ttnn.deallocate(allocate(device, 64))


@pytest.mark.limit_device_memory("64 KiB", space="l1")
def test_peak_of_l1_fails(device):
    ttnn.deallocate(allocate(device, 32, L1))


@pytest.mark.limit_device_memory("1 B", space="l1")
def test_peak_of_another_space_passes(device):
    ttnn.deallocate(allocate(device, 32))


@pytest.mark.limit_device_leaks("0 B")
def test_freed_tensor_passes(device):
    ttnn.deallocate(allocate(device, 1))


@pytest.mark.limit_device_leaks()
def test_leak_fails(device):
    kept.append(allocate(device, 1))


@pytest.mark.limit_device_leaks("0 B", warmup=1)
def test_cache_that_is_warm_passes(device, cache={}):
    cache.setdefault("one", allocate(device, 1))


@pytest.mark.limit_device_leaks("0 B", filter_fn=lambda leak: leak.function != "allocate")
def test_filtered_leak_passes(device):
    kept.append(allocate(device, 1))


@pytest.mark.limit_device_leaks("0 B")
def test_cycle_is_no_leak_passes(device):
    cycle = [allocate(device, 1)]
    cycle.append(cycle)


@pytest.mark.limit_device_memory("1 GiB", device=7)
def test_device_that_is_not_used_fails(device):
    ttnn.deallocate(allocate(device, 1))


class InUnittest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def use_device(self, device):
        self.device = device

    @pytest.mark.limit_device_memory("1 KiB")
    def test_peak_in_unittest_fails(self):
        ttnn.deallocate(allocate(self.device, 1))


@pytest.mark.limit_device_memory("0 B")
@pytest.mark.limit_device_leaks("0 B")
def test_own_failure_is_shown_fails(device):
    kept.append(allocate(device, 1))
    assert "apple" == "pear"


@pytest.mark.limit_device_leaks("0 B")
def test_kept_exception_fails(device):
    # The failure before holds as much of the same line until now.
    tensor = allocate(device, 1)
    try:
        raise ValueError
    except ValueError as error:
        kept.append(error)


def test_without_limits_passes(device):
    ttnn.deallocate(allocate(device, 16))
