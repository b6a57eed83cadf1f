"""The packages of the wheel: all of `kernels`, so that a new system needs no line here. pyproject.toml has the rest."""

import shutil

from setuptools import find_packages, setup

NAME = "sparsity_on_trial"
BUILD = "build/wheel"  # beside what else is built

# A file that an earlier build left there, and the tree no longer has, would be packed as well.
shutil.rmtree(BUILD, ignore_errors=True)

setup(
    packages=[NAME, *(f"{NAME}.{package}" for package in find_packages("kernels"))],
    package_dir={NAME: "kernels"},
    options={"build": {"build_base": BUILD}},
)
