"""The deterministic simulator: worlds of core brokers on a virtual clock and network."""
