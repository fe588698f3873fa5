//! The macro that makes an enum of the vocabulary: one row a variant, with its number, its name and its description.

/// Makes an enum and what can be asked of all such enums. Names are those of JSON, options and log lines; descriptions
/// are the documentation, in Rust as in the generated C header and Python module.
macro_rules! vocabulary {
    ($(#[$meta:meta])* pub enum $enum:ident: $repr:ident {
        $($(#[$variant_meta:meta])* $variant:ident = $number:literal, $name:literal: $doc:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
        #[repr($repr)]
        pub enum $enum {
            $($(#[$variant_meta])* #[doc = $doc] $variant = $number,)*
        }

        impl $enum {
            /// All of them, in the order of their numbers.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$variant),*];

            /// The one with this number.
            #[inline]
            pub const fn from_number(number: $repr) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The name in JSON, options and log lines.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The one with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|it| it.name() == name)
            }

            /// What it means, in a sentence or two.
            pub const fn description(self) -> &'static str {
                match self {
                    $(Self::$variant => $doc,)*
                }
            }
        }
    };
}
