//! The dashboard from outside: messages in, screens out.
#![allow(clippy::unwrap_used, missing_docs)]

mod anything;
mod desk;
mod keys;
mod screens;
mod selection;
mod states;
mod styles;
