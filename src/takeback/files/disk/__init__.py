"""The directories of an agent: scanned, compared and restored. Nothing here knows of sessions or stores."""
