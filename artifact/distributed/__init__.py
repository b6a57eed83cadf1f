"""Beyond one GPU, measured: `scaling` over the GPUs of a host, a `model` of many more, `farm`, which deals measurements
out to several GPUs, and the `page` of the book."""
