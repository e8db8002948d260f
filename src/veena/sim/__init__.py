"""The deterministic simulator: worlds of core brokers on a virtual clock and network.

From low to high: `networks` (graphs without brokers), `world` (brokers, clock, network, disks), `clients`, `judges`,
`runs` (one seed from options to report), and above these `explaining` and `experiments`.
"""
