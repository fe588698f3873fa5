//! The dashboard from outside: messages in, screens out.
#![allow(clippy::unwrap_used, missing_docs)]

mod dashboard;
mod keys;
mod properties;
mod screens;
mod selection;
mod states;
mod styles;
