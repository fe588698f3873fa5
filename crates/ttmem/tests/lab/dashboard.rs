//! The dashboard beside stock ttnn on eight chips: it shows the figures of the snapshot, and follows changes.

use crate::{Puppet, exe, process, snapshot};
use std::path::Path;
use std::process::Command;
use ttmem_core::snapshot::Tracking;
use ttmem_core::words::size;
use ttmem_testkit::memory_folder;
use ttmem_testkit::terminal::Terminal;

pub(crate) fn top(folder: &Path) -> Terminal {
    let mut command = Command::new(exe());
    command.args(["top", "--local", "--refresh", "100", "--shm-dir"]).arg(folder);
    Terminal::start(&command, (160, 44))
}

#[test]
fn dashboard_follows_a_workload_on_eight_chips() {
    let folder = memory_folder();
    let mut puppet = Puppet::start_with_device("t3k", folder.path(), "2, 4");
    puppet.run(
        "weights = [ttnn.zeros((1, 1, 1024, 1024), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=d) for _ in range(8)]\n\
         x = ttnn.zeros((1, 1, 512, 1024), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=d, memory_config=ttnn.L1_MEMORY_CONFIG)\n\
         y = ttnn.add(x, x)\n\
         s = ttnn.softmax(x, dim=-1)\n",
    );
    let pid = puppet.pid();
    let mut screen = top(folder.path());
    // Main: eight chips, and the process, whose audits match.
    let row = screen.wait_for("the process", |screen| {
        let text = screen.contents();
        text.lines().find(|it| it.contains(&format!(" {pid} ")) && it.contains("audited")).map(str::to_owned)
    });
    let seen = snapshot(folder.path());
    let summary = &process(&seen, pid).summary;
    assert_eq!(process(&seen, pid).tracking, Tracking::Audited);
    for expected in ["0-7".to_owned(), size(summary.dram_bytes.unwrap()), size(summary.l1_bytes.unwrap())] {
        assert!(row.contains(&expected), "{expected} in {row}");
    }
    assert!(screen.text().contains(" 1/8 "));
    // Charts: one for each chip, with its value.
    screen.send("2");
    let total = seen.devices[7].usage.l1_total.clone().unwrap();
    screen.wait_for_text("7 n300");
    screen.wait_for_text(&format!("L1 {} ", size(total.used_bytes)));
    // Map: the resident program of a core, and the snapshot's free gap.
    screen.send("4");
    screen.wait_for_text("softmax");
    let room = seen.devices[0].tightest_core.unwrap();
    screen.wait_for_text(&format!("{:#x} to {:#x}", room.program_end, room.lowest_buffer));
    // Buffers: the number of allocations, before and after a new one.
    screen.send("5");
    let count = |folder: &Path| {
        let output = Command::new(exe())
            .args(["dump", "--json", "--local", "--shm-dir"])
            .arg(folder)
            .output()
            .unwrap();
        let dump: serde_json::Value = ttmem_testkit::schema::dump(&output.stdout);
        dump["allocations"].as_array().unwrap().len()
    };
    let before = count(folder.path());
    screen.wait_for_text(&format!("Buffers: {before} allocations"));
    puppet
        .run("more = ttnn.zeros((1, 1, 2048, 2048), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=d)");
    screen.wait_for_text(&format!("Buffers: {} allocations", count(folder.path())));
    screen.wait_for_text(" 8.0 MiB ");
    puppet.run("ttnn.deallocate(more)");
    screen.wait_for_text(&format!("Buffers: {before} allocations"));
    // Programs: both are listed, until the cache is cleared.
    screen.send("6");
    screen.wait_for_text("Programs: ");
    screen.wait_for_text("binary_ng");
    screen.wait_for_text("softmax");
    puppet.run("d.disable_and_clear_program_cache()");
    screen.wait_for_text("No programs.");
    screen.send("q");
    screen.expect_clean_exit();
    assert!(puppet.quit().success());
}
