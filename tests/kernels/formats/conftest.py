"""What tests of formats share: a GPU, or a host that runs its kernels of preparation."""

from emulated import there  # noqa: F401
