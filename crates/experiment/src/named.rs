//! A macro for enumerations whose values have names.

/// Implements methods for the names of an enumeration's values, as users and JSON documents write
/// them.
macro_rules! named {
    ($type:ident: $($value:ident $name:literal),+) => {
        impl $type {
            /// All values of the enumeration.
            pub const ALL: &[$type] = &[$($type::$value),+];

            /// Returns the value's name on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $($type::$value => $name),+ }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<$type, String> {
                match text {
                    $($name => Ok($type::$value),)+
                    _ => Err(format!("`{text}` is unknown; expected one of {}", [$($name),+].join(", "))),
                }
            }
        }

        impl TryFrom<String> for $type {
            type Error = String;

            fn try_from(text: String) -> Result<$type, String> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.name().to_owned()
            }
        }
    };
}

pub(crate) use named;
