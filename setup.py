"""The packages of the wheel: all of `kernels`, so that a new room needs no line here. pyproject.toml has the rest."""

from setuptools import find_packages, setup

NAME = "sparsity_on_trial"

setup(
    packages=[NAME, *(f"{NAME}.{package}" for package in find_packages("kernels"))],
    package_dir={NAME: "kernels"},
)
