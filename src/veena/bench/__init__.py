"""Benchmarks and experiments, reached by the command line.

`matching` measures engines, `load` brokers under load, `latency` and `collaboratory` are experiments with many clients,
`endurance` runs brokers in trouble. At the top: `manned_fleet` opens brokers and their clients, `progress` shows where
a run stands, `report_folder` is where an experiment leaves its report.
"""
