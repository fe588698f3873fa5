//! Programs: what they keep, where, and which of them is there.
