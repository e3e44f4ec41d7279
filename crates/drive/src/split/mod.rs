//! The splitter's driver: sockets and a clock around [`anabranch_comps`].

mod settings;

pub use settings::{Failure, Listening, Screen, Settings, Target, TargetError, fresh_seed};
