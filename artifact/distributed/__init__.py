"""Beyond one GPU, measured: `scaling` over the GPUs of a host.

`farm`, which deals measurements out to several, and `agreement`, whether they come out the same; the `page` of the
book, with a model of many more GPUs.
"""
