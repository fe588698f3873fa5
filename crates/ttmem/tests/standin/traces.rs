//! Traces: nothing happens while one is captured, and all of it when it is replayed.
