"""Every table of a store, each described once: columns, check, statements, paging, schema.

``table`` is what a description consists of; the other modules hold one table or a few that belong together; ``schema``
writes all of them as SQL for either engine.
"""
