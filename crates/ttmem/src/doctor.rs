//! `ttmem doctor`: what is found, what is missing, and what to do about it.

use crate::Exit;
use crate::cli::{DoctorArgs, Sockets};

pub(crate) fn doctor(_args: &DoctorArgs, _sockets: &Sockets) -> anyhow::Result<Exit> {
    Ok(Exit::Broken)
}
