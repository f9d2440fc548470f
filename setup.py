"""What pyproject.toml cannot say: the native part is built by cffi."""

from setuptools import setup

setup(cffi_modules=["lo2io/_native/build.py:ffibuilder"])
