"""The engine once more, in slow, plain Python: by docs/explanation/rules and the comments that they link to.

The native engine must agree with it.
"""
