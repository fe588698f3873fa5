//! The arguments of `ttmem serve`.

use super::Sockets;
use crate::sim;
use clap::Args;
use ttmem_core::Limits;
use ttmem_daemon::Sharing;
use ttmem_reader::paths;
use ttmem_sources::SourceConfig;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Do not write the event log.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Log the events of segments, too, in the old server's format.
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) log_segments: bool,
    /// Simulate devices: n150, n300, t3k, p100a, p150a, p300, galaxy-wh or galaxy-bh.
    #[arg(long, value_name = "BOARD[xN]")]
    pub(crate) sim: Option<sim::Machine>,
    /// Permissions of the sockets, in octal.
    #[arg(long, value_name = "MODE", default_value = "666", value_parser = parse_octal_mode)]
    pub(crate) socket_mode: u32,
    /// Show members of this group, by name or number, everything of all users' processes.
    #[arg(long, value_name = "GROUP", value_parser = parse_group)]
    pub(crate) share_group: Option<u32>,
    /// Show all users names, call sites and buffers of each other's processes, but never arguments.
    #[arg(long)]
    pub(crate) share_all: bool,
    /// Live allocations per process; more are refused, with a finding.
    #[arg(long, value_name = "N", default_value_t = Limits::default().records_per_process)]
    pub(crate) process_limit: u64,
    /// Exit with this parent and remove the folder of the sockets: for the demo.
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) parent: Option<u32>,
}

fn parse_octal_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("expected an octal number up to 777".to_owned()),
    }
}

/// The number of a group of this machine.
fn parse_group(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string("/etc/group").map_err(|e| format!("cannot read /etc/group: {e}"))?;
    let mut lines = groups.lines().map(|line| line.split(':'));
    let found = lines.find_map(|mut fields| (fields.next()? == text).then(|| fields.nth(1)?.parse().ok())?);
    found.ok_or_else(|| {
        "no such group in /etc/group; for one of a directory service, use its number".to_owned()
    })
}

impl ServeArgs {
    pub(crate) fn options(&self, sockets: &Sockets) -> anyhow::Result<ttmem_daemon::Options> {
        Ok(ttmem_daemon::Options {
            legacy_socket: sockets.legacy_socket.clone(),
            query_socket: match &sockets.query_socket {
                Some(path) => path.clone(),
                None => paths::query_socket_to_serve()?,
            },
            mode: self.socket_mode,
            quiet: self.quiet,
            log_segments: self.log_segments,
            // Simulated devices are never shown beside real ones.
            sources: SourceConfig { machine: self.sim.is_none(), repeated: true, ..sockets.source_config()? },
            chips: self.sim.as_ref().map(sim::Machine::chips).unwrap_or_default(),
            sensors: self.sim.as_ref().map(|_| sim::sensors::reading as _),
            sharing: Sharing { group: self.share_group, all: self.share_all },
            limits: Limits { records_per_process: self.process_limit, ..Limits::default() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_names_and_numbers() {
        assert_eq!((parse_group("root"), parse_group("4711")), (Ok(0), Ok(4711)));
        assert!(parse_group("no-such-group").unwrap_err().contains("no such group"));
    }

    #[test]
    fn socket_modes_are_octal() {
        assert_eq!(parse_octal_mode("660"), Ok(0o660));
        assert!(
            parse_octal_mode("888").is_err()
                && parse_octal_mode("7777").is_err()
                && parse_octal_mode("").is_err()
        );
    }
}
