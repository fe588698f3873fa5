//! The acceptance tests of the old tools that need no hardware.

use crate::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use ttmem_testkit::puppet::Puppet;
use ttmem_testkit::{Client, eventually, message};
use ttmem_types::KernelClass;
use ttmem_wire::legacy::{Levels, Type, Vintage};

#[test]
fn old_demo_client_is_tracked() {
    let server = server();
    for vintage in Vintage::ALL {
        let mut client = Client::connect(&server, vintage);
        let mut held = Vec::new();
        for (count, kind, size) in [(4, L1, MIB), (4, DRAM, 25 * MIB), (8, L1, MIB)] {
            for _ in 0..count {
                let id = 0x10_0000 + held.len() as u64 * 0x1_0000;
                client.alloc(0, kind, id, size);
                held.push(id);
            }
        }
        let levels = client.query(0).levels;
        assert_eq!((levels.dram, levels.l1), (100 * MIB, 12 * MIB), "{vintage:?}");
        for id in held.drain(..8) {
            client.free(0, id);
        }
        let levels = client.query(0).levels;
        assert_eq!((levels.dram, levels.l1), (0, 8 * MIB), "{vintage:?}");
        for id in held {
            client.free(0, id);
        }
        assert_eq!(client.query(0).levels, Levels::default(), "{vintage:?}");
    }
    assert!(server.allocations().is_empty());
}

#[test]
fn address_is_reused() {
    let server = server();
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, L1, 25_718_784, 524_288);
    client.free(0, 25_718_784);
    client.alloc(0, L1, 25_718_784, 98_304);
    assert_eq!(client.query(0).levels.l1, 98_304);
    server.wait_for_log("Freed buffer 0x1887000 on device 0 (524288 bytes, FINAL)");
    server.wait_for_log("Allocated 98304 bytes of L1 on device 0 (buffer_id=0x1887000)");
    assert!(server.snapshot().findings.is_empty());
}

#[test]
fn mesh_buffer_has_one_id_on_all_devices() {
    let server = server();
    let mut client = Client::connect(&server, Vintage::V144);
    for round in 0..3 {
        for device in 0..8 {
            client.alloc(device, DRAM, 0x20_0000 + round, 4_194_304);
        }
    }
    for device in 0..8 {
        assert_eq!(client.query(device).levels.dram, 3 * 4_194_304);
        assert_eq!(server.usage(device as u32).dram.unwrap().count, Some(3));
    }
    for round in 0..3 {
        for device in 0..8 {
            client.free(device, 0x20_0000 + round);
        }
    }
    for device in 0..8 {
        assert_eq!(client.query(device).levels, Levels::default());
    }
}

#[test]
fn kill_9_reclaims_one_process_only() {
    let server = server();
    let mut victim = Puppet::new(&server.legacy);
    let mut other = Puppet::new(&server.legacy);
    for puppet in [&mut victim, &mut other] {
        puppet.send(Type::Alloc, 0, DRAM, 0x1000, 4096);
        puppet.send(Type::Alloc, 1, L1, 0x1000, 8192);
        puppet.send(Type::CbAlloc, 0, 0, 0x19d60, 2048);
        puppet.send(Type::KernelLoad, 0, 0, 7, 1024);
    }
    victim.kill();
    let snapshot = server.snapshot();
    assert!(snapshot.processes.iter().all(|p| p.pid == Some(other.pid)), "{:?}", snapshot.processes);
    let usage = &snapshot.devices[0].usage;
    assert_eq!(usage.dram.as_ref().unwrap().requested_bytes, 4096);
    assert_eq!(usage.cb.as_ref().unwrap().registered_bytes, 2048);
    assert_eq!(usage.kernel.as_ref().unwrap().registered_bytes, 1024);
    assert_eq!(server.allocations().len(), 4);
    other.kill();
    let snapshot = server.snapshot();
    assert!(snapshot.processes.is_empty() && server.allocations().is_empty());
    let mut client = Client::connect(&server, Vintage::V144);
    for device in 0..8 {
        assert_eq!(client.query(device).levels, Levels::default());
    }
    server.wait_for_log(&format!("Removed 2 buffers (0.0117188 MB) from PID {}", victim.pid));
    server.wait_for_log(&format!("Removed 1 CBs (0.00195312 MB) from PID {}", victim.pid));
    server.wait_for_log(&format!("Removed 1 kernels (0.000976562 MB) from PID {}", victim.pid));
}

#[test]
fn system_kernels_are_reclaimed_with_their_owner() {
    let server = server();
    let mut owner = Puppet::new(&server.legacy);
    for device in 0..8 {
        for n in 0..2 {
            owner.send(Type::KernelLoad, device, KernelClass::Fabric as u8, 0x10 + n, 57_344);
            owner.send(Type::KernelLoad, device, KernelClass::Dispatch as u8, 0x20 + n, 47_104);
        }
    }
    let mut client = Client::connect(&server, Vintage::V144);
    for device in 0..8 {
        assert_eq!(client.query(device).levels.kernel, 208_896);
    }
    client.send(message(Type::DumpKernels, 0, 0, 0, 0));
    server.wait_for_log("DETAILED KERNEL ALLOCATIONS");
    server.wait_for_log(&format!("- Kernel 0x10: 56 KB (Fabric, PID {}, age ", owner.pid));
    server.wait_for_log(&format!("- Kernel 0x21: 46 KB (Dispatch, PID {}, age ", owner.pid));
    owner.kill();
    for device in 0..8 {
        assert_eq!(client.query(device).levels.kernel, 0);
    }
}

#[test]
fn client_with_112_byte_messages_is_understood() {
    let server = server();
    let mut client = Client::connect(&server, Vintage::V112);
    for n in 0..100 {
        client.alloc((n % 8) as i32, DRAM, n << 12, 4096);
    }
    for device in 0..8 {
        let expected = (0..100).filter(|n| n % 8 == device).count() as u64 * 4096;
        assert_eq!(client.query(device).levels.dram, expected);
    }
    assert_eq!(server.warnings(), "");
}

#[test]
fn dump_request_of_72_bytes_is_answered() {
    // As the old dump script does.
    let server = server();
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(3, DRAM, 0xabc, 3072);
    client.sync();
    let mut dump = Client::connect(&server, Vintage::V72);
    dump.send(message(Type::DumpRemaining, 0, 0, 0, 0));
    drop(dump);
    server.wait_for_log("REMAINING ALLOCATED BUFFERS");
    let line = format!("- Buffer 0xabc: 3 KB (PID {}, ref_count=1)", std::process::id());
    server.wait_for_log(&line);
}

#[test]
fn single_newline_gets_a_text_dump() {
    let server = server();
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(2, DRAM, 0xd00, 2048);
    client.cb_alloc(2, 0x19d60, 1024);
    client.kernel_load(2, 0, 5, 512);
    client.sync();
    // With the connection left open, as `nc` without -N does, and with it half closed.
    for close in [false, true] {
        let mut person = UnixStream::connect(&server.legacy).unwrap();
        person.write_all(b"\n").unwrap();
        if close {
            person.shutdown(std::net::Shutdown::Write).unwrap();
        }
        let mut text = String::new();
        person.read_to_string(&mut text).unwrap();
        let pid = std::process::id();
        for part in [
            "REMAINING ALLOCATED BUFFERS".to_owned(),
            "Total tracked allocations: 3".to_owned(),
            format!("- Buffer 0xd00: 2 KB (PID {pid}, ref_count=1)"),
            format!("- CB 0x19d60: 1 KB (PID {pid}, ref_count=1)"),
            format!("- Kernel 0x5: 0.5 KB (PID {pid}, ref_count=1)"),
        ] {
            assert!(text.contains(&part), "{part:?} is not in {text}");
        }
    }
    assert_eq!(server.snapshot().processes.len(), 1, "`nc` is not a client");
}

#[test]
fn documented_nc_command_gets_a_text_dump() {
    let server = server();
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, DRAM, 0xbeef, 4096);
    client.sync();
    let command = format!(r#"echo "" | nc -U {}"#, server.legacy.display());
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(text.contains("- Buffer 0xbeef: 4 KB"), "{text}{errors}");
}

#[test]
fn old_python_query_is_answered() {
    let server = server();
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(1, DRAM, 0x1000, 123_456);
    client.sync();
    // Format string and short read are those of the old tool.
    let script = r"
import socket, struct, sys
F = '<BxxxiQBxxxiQQ' + 'Q'*6 + 'Q'*2 + 'I'*6 + 'I'*4
assert struct.calcsize(F) == 144
def ask(sock, kind, device):
    sock.send(struct.pack(F, kind, device, 0, 0, 0, 0, 0, *[0]*18))
    return sock.recv(144)
sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
sock.connect(sys.argv[1])
count = struct.unpack(F, ask(sock, 6, -1))
info = struct.unpack(F, ask(sock, 6, 1))
level = struct.unpack(F, ask(sock, 3, 1))
sock.send(struct.pack(F, 6, -1, 0, 0, 0, 0, 0, *[0]*18))
short = sock.recv(128)
print(len(count), count[0], count[1], count[20], info[13], info[14], level[0], level[7], len(short))
";
    let output = Command::new("python3")
        .args(["-c", script])
        .arg(&server.legacy)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    // Type, device, number of devices; DRAM and L1 of a device; type and DRAM level; the length of the short read.
    assert_eq!(text.trim(), "25 7 -1 8 12884901888 95944704 4 123456 128");
}

#[test]
fn device_info_matches_the_old_server() {
    let server = Server::start(exe(), &["--sim", "p150a"]);
    let mut client = Client::connect(&server, Vintage::V144);
    let count = client.device_info(-1);
    assert_eq!((count.kind, count.device_id), (Type::DeviceInfoResponse as u8, -1));
    assert_eq!((count.capacity.num_devices, count.capacity.is_available), (1, 1));
    assert_eq!(count.capacity.total_dram_size, 0);
    let info = client.device_info(0).capacity;
    assert_eq!(info.num_devices, 0);
    assert_eq!((info.is_available, info.arch_type), (1, 3));
    assert_eq!(info.num_dram_channels, 8);
    assert_eq!(info.dram_size_per_channel, 4_278_190_080);
    assert_eq!(info.total_dram_size, 8 * 4_278_190_080);
    assert_eq!((info.total_l1_size, info.l1_size_per_core), (188_743_680, 1_572_864));
    let none = client.device_info(7);
    assert_eq!((none.device_id, none.capacity), (7, ttmem_wire::legacy::DeviceInfo::default()));

    let unknown = Server::start(exe(), &[]);
    let mut client = Client::connect(&unknown, Vintage::V112);
    let count = client.device_info(-1).capacity;
    assert_eq!((count.num_devices, count.is_available), (0, 0));
}

#[test]
fn totals_include_running_processes_only() {
    let server = server();
    let mut puppets: Vec<Puppet> = (0..4).map(|_| Puppet::new(&server.legacy)).collect();
    for (n, puppet) in puppets.iter_mut().enumerate() {
        puppet.send(Type::Alloc, 0, DRAM, 0x1000, 1000 << n);
    }
    let total = |server: &Server| server.usage(0).dram.map_or(0, |dram| dram.requested_bytes);
    assert_eq!(total(&server), 15_000);
    puppets.remove(3).kill();
    assert_eq!(total(&server), 7000);
    puppets.remove(0).quit();
    eventually("a process that quits is noticed", || (total(&server) == 6000).then_some(()));
}

#[test]
fn connections_of_one_process_are_one_process() {
    let server = server();
    let mut puppet = Puppet::new(&server.legacy);
    for n in 0..16 {
        puppet.send(Type::Alloc, 0, DRAM, n, 100);
        puppet.reconnect();
    }
    let snapshot = server.snapshot();
    assert_eq!(snapshot.processes.len(), 1);
    assert_eq!(snapshot.devices[0].usage.dram.as_ref().unwrap().requested_bytes, 1600);
    assert_eq!(snapshot.health.connections, 1);
}

#[test]
fn six_processes_start_while_one_exits() {
    let server = server();
    let mut victim = Puppet::new(&server.legacy);
    victim.send(Type::Alloc, 0, DRAM, 0x1000, 1 << 20);
    let path = server.legacy.clone();
    let threads: Vec<_> = (0..6)
        .map(|n| {
            let path = path.clone();
            std::thread::spawn(move || {
                let mut puppet = Puppet::new(&path);
                puppet.send(Type::Alloc, 0, DRAM, 0x1000, 1000 + n);
                puppet
            })
        })
        .collect();
    victim.kill();
    let puppets: Vec<Puppet> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let snapshot = server.snapshot();
    assert_eq!(snapshot.processes.len(), puppets.len());
    assert_eq!(snapshot.devices[0].usage.dram.as_ref().unwrap().requested_bytes, 6000 + 15);
}

#[test]
fn churn_of_connections_loses_no_events() {
    let server = server();
    let mut recorder = Puppet::new(&server.legacy);
    let path = server.legacy.clone();
    let churn: Vec<_> = (0..3)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || {
                for n in 0..40 {
                    let mut client = Client::connect_to(&path, Vintage::ALL[n % 4]);
                    client.alloc(1, L1, n as u64, 64);
                    client.free(1, n as u64);
                    client.sync();
                }
            })
        })
        .collect();
    recorder.flood(40000, 4096);
    assert_eq!(server.usage(0).dram.unwrap().requested_bytes, 40_000 * 4096);
    for thread in churn {
        thread.join().unwrap();
    }
    assert_eq!(server.usage(0).dram.unwrap().requested_bytes, 40_000 * 4096);
    assert_eq!(server.allocations().len(), 40_000);
}
