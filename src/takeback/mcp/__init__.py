"""The MCP server: the tools of ``takeback.tools`` for any program that speaks the Model Context Protocol.

It needs the extra ``takeback[mcp]``, whose SDK takes most of a second to import, so nothing else imports this folder.
"""
