import pytest

from tests.support.nvml.fake import Nvml


@pytest.fixture(scope="session")
def nvml(tmp_path_factory):
    """Checks under the real nvidia-ml-py and a fake libnvidia-ml.so.1."""
    library = Nvml(tmp_path_factory.mktemp("nvml"))
    yield library
    library.close()
