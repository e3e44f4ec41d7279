//! netem
