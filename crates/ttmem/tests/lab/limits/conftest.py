"""A device for all tests. Importing ttnn here is early: before pytest is configured."""

import pytest
import ttnn


@pytest.fixture(scope="session")
def device():
    device = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))
    yield device
    ttnn.close_mesh_device(device)
