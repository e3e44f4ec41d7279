//! comps
