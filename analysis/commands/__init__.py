"""The sub-commands: what each is asked, and how its answer is put out.

Each module has `DOC`, `EXAMPLE`, `options` and `act`; what is slow to import is imported in `act`.
"""
