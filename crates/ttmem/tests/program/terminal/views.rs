//! Views of single allocations in a real terminal.

use super::{DOWN, quit, start_top};
use crate::{MIB, server};
use ttmem_testkit::eventually;
use ttmem_testkit::producer::Producer;

#[test]
fn flame_follows_allocations_and_moments() {
    let server = server();
    let mut producer = Producer::new(server.segments.path());
    producer.site("model.py:7 (forward)".to_owned());
    producer.alloc(4096, MIB);
    eventually("the server lists it", || server.process(producer.pid));
    let terminal = start_top(&server, &[]);
    terminal.send("8");
    terminal.wait_for_text("Flame of all devices");
    terminal.wait_for_text(&format!("(pid {})", producer.pid));
    terminal.wait_for_text("DRAM 1.0 MiB");
    producer.alloc(1 << 30, MIB);
    terminal.wait_for_text("DRAM 2.0 MiB");
    terminal.send("mm");
    terminal.wait_for_text("no mark set by ");
    terminal.send("m");
    terminal.send(DOWN);
    terminal.send("\r");
    terminal.wait_for_text("2.0 MiB  100.0 % of DRAM");
    quit(terminal);
}

#[test]
fn addresses_follow_allocations_and_keys() {
    let server = server();
    let mut producer = Producer::new(server.segments.path());
    producer.alloc(MIB, MIB);
    eventually("the server lists it", || server.process(producer.pid));
    let terminal = start_top(&server, &[]);
    terminal.send("9");
    terminal.wait_for_text("Addresses of device 0");
    // The producer's device is the last one.
    terminal.send("[");
    terminal.wait_for_text(&format!("(pid {})", producer.pid));
    terminal.wait_for_text("Blocks of DRAM: 1 used, 2 free");
    producer.alloc(4 * MIB, MIB);
    terminal.wait_for_text("Blocks of DRAM: 2 used, 3 free");
    terminal.send("f");
    terminal.wait_for_text(", largest free block");
    terminal.send("/used");
    terminal.send("\r");
    terminal.wait_for_text("filter: used");
    terminal.send("\r");
    terminal.wait_for_text("Allocation 0x");
    // The first `q` closes the details.
    terminal.send("q");
    quit(terminal);
}
