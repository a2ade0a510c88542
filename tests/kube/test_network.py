"""Names of hosts, from a kubeconfig or a proxy's setting."""

from __future__ import annotations

import pytest

from gangsched.kube.network import KERNEL
from gangsched.kube.reach import plain


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example"])
async def test_a_name_that_no_host_can_have_is_not_reached(host: str) -> None:
    with pytest.raises(OSError, match="not a host name") as caught:
        await KERNEL.connect(host, 1)
    assert plain(caught.value) == "its name cannot be resolved: it is not a host name"
