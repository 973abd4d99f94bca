"""The files of an agent: looked at, kept, compared, and put back. Nothing here knows of sessions or stores."""
