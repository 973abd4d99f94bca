"""Records: everything of a store in a form that holds in any store, moved in one way.

``stream`` says what a record is. A source yields them in an order in which each names only what came before it:
``source`` reads a store that must be sound, ``salvage`` one that is damaged, ``lines`` a file. ``sink`` puts them into
a store, where nobody sees a session before it is whole. Copying, exporting, importing and repairing are a source and a
sink each; none of them writes a row by itself.
"""
