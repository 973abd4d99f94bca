"""The durability promises, proven with real processes, real files and real faults."""
