"""Engines that store the data, behind one contract (``base``). Only ``client.open`` imports drivers."""
