"""Engines that keep the data, behind one contract (``base``). Drivers are imported by ``client.open`` only."""
