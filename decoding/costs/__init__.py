"""What is measured of a pair on this machine and kept: times, acceptance, a selector's latencies."""
