//! Writes the files of a simulated machine to a folder: `cargo run -p ttmem-testkit --example machine -- t3k 2.10.0 DIR`.

use std::process::Command;
use ttmem_testkit::machine;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, driver, to] = &words[..] else { panic!("expected KIND DRIVER FOLDER") };
    let mut machine = match kind.as_str() {
        "n150" => machine::n150(driver),
        "t3k" => machine::t3k(driver),
        "p150a" => machine::p150a(driver),
        "p300b" => machine::p300b(driver),
        "galaxy" => machine::galaxy(driver),
        "galaxy-blackhole" => machine::galaxy_blackhole(driver),
        _ => panic!("no such machine"),
    };
    machine.add_processes(std::env::var("BUSY").ok().and_then(|n| n.parse().ok()).unwrap_or(4));
    assert!(Command::new("cp").arg("-a").arg(machine.root()).arg(to).status().is_ok_and(|it| it.success()));
}
