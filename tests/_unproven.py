"""What the reason of a skip says when this machine lacks what a test needs; the summary of a run repeats it loudly."""

NOT_PROVEN = "not proven"
