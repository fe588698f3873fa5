//! The macro that declares an enum of the vocabulary: one row per variant, with its number, its name and its description.

/// Declares an enum with the functions that all such enums have. Names are those of JSON, options and log lines; descriptions are
/// the documentation in Rust, in the generated C header and in the Python module.
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
            /// All variants, in the order of their numbers.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$variant),*];

            /// Returns the variant with this number.
            ///
            /// ```
            #[doc = concat!("# use ttmem_types::", stringify!($enum), ";")]
            #[doc = concat!("let first = ", stringify!($enum), "::ALL[0];")]
            #[doc = concat!("let number = first as ", stringify!($repr), ";")]
            #[doc = concat!("assert_eq!(", stringify!($enum), "::from_number(number), Some(first));")]
            /// ```
            #[inline]
            pub const fn from_number(number: $repr) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Returns the name in JSON, options and log lines.
            ///
            /// ```
            #[doc = concat!("# use ttmem_types::", stringify!($enum), ";")]
            #[doc = concat!("let names = ", stringify!($enum), "::ALL.map(", stringify!($enum), "::name);")]
            /// println!("{}", names.join(", "));
            /// ```
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns the variant with this name.
            ///
            /// ```
            #[doc = concat!("# use ttmem_types::", stringify!($enum), ";")]
            #[doc = concat!("let first = ", stringify!($enum), "::ALL[0];")]
            #[doc = concat!("assert_eq!(", stringify!($enum), "::from_name(first.name()), Some(first));")]
            #[doc = concat!("assert_eq!(", stringify!($enum), "::from_name(\"no such name\"), None);")]
            /// ```
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|variant| variant.name() == name)
            }

            /// Returns the description, a sentence or two.
            ///
            /// ```
            #[doc = concat!("# use ttmem_types::", stringify!($enum), ";")]
            #[doc = concat!("for variant in ", stringify!($enum), "::ALL {")]
            ///     println!("{}: {}", variant.name(), variant.description());
            /// }
            /// ```
            pub const fn description(self) -> &'static str {
                match self {
                    $(Self::$variant => $doc,)*
                }
            }
        }
    };
}
