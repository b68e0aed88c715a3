"""What all APIs share: scans of bodies, streams of events, headers, refusals, reports. It does no I/O."""
