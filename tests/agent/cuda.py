"""`python -m tests.agent.cuda` prints the UUIDs of the GPUs it may use; with `--break` it then breaks itself.

By the driver's own library, so nothing has to be installed beside the driver: CUDA Driver API,
https://docs.nvidia.com/cuda/cuda-driver-api/. Exits with the code of a call that failed.
"""

from __future__ import annotations

import ctypes
import sys
import uuid

# A thread that writes to an address which nobody has allocated.
_BROKEN = b"""
.version 6.5
.target sm_75
.address_size 64
.visible .entry broken()
{
    .reg .b64 %address;
    .reg .b32 %value;
    mov.u64 %address, 16;
    mov.u32 %value, 1;
    st.global.u32 [%address], %value;
    ret;
}
"""


class Cuda:
    """The driver's library; a call that fails ends the program."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", ctypes.c_uint(0))

    def call(self, name: str, *arguments: object) -> None:
        if code := getattr(self._library, name)(*arguments):
            print(f"{name}: error {code}", file=sys.stderr)
            sys.exit(code % 256 or 1)

    def uuids(self) -> list[str]:
        """Of the GPUs that this process may use, in NVML's form."""
        n, found = ctypes.c_int(), []
        self.call("cuDeviceGetCount", ctypes.byref(n))
        for i in range(n.value):
            raw = (ctypes.c_char * 16)()
            self.call("cuDeviceGetUuid", ctypes.byref(raw), ctypes.c_int(i))
            found.append(f"GPU-{uuid.UUID(bytes=bytes(raw))}")
        return found

    def use(self) -> None:
        """Opens the first GPU, and takes a little of its memory."""
        context, address = ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(0))
        self.call("cuCtxSetCurrent", context)
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(2**20))

    def break_itself(self) -> None:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), _BROKEN)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"broken")
        one = [ctypes.c_uint(1)] * 6
        self.call("cuLaunchKernel", function, *one, ctypes.c_uint(0), None, None, None)
        self.call("cuCtxSynchronize")


def main() -> None:
    cuda = Cuda()
    cuda.use()
    print("\n".join(cuda.uuids()))
    if "--break" in sys.argv:
        cuda.break_itself()


if __name__ == "__main__":
    main()
