"""Every table of a store, each described once: columns, check, statements, paging, schema.

``table`` defines what a description is; the other modules describe one table or a few that belong together; ``schema``
writes all of them as SQL for either engine. Modules of rows do without ``from __future__ import annotations``: a
``NamedTuple`` compiles each type that is a string, and that would take longer than everything else in them.
"""
