//! Messages of all sizes, split anywhere, on many connections: totals equal those of a simple model.

use crate::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use std::io::Write;
use ttmem_testkit::{Client, message};
use ttmem_wire::legacy::{MAX_SIZE, Message, Type, Vintage};

/// The messages of a connection, and where its bytes are split.
#[derive(Clone, Debug)]
struct Stream {
    vintage: Vintage,
    steps: Vec<(u8, u8, u8, u8)>,
    cuts: Vec<usize>,
}

fn streams() -> impl Strategy<Value = Vec<Stream>> {
    let stream = (
        prop::sample::select(&Vintage::ALL[..]),
        prop::collection::vec((0u8..6, 0u8..3, 0u8..4, 1u8..5), 1..60),
        prop::collection::vec(0usize..9000, 0..40),
    );
    prop::collection::vec(stream.prop_map(|(vintage, steps, cuts)| Stream { vintage, steps, cuts }), 1..12)
}

/// A simple model. Each connection has ids of its own, since the order between connections is undefined.
#[derive(Default)]
struct Model {
    buffers: BTreeMap<(i32, u64), (u8, u64, u32)>,
    kernels: BTreeMap<(i32, u64), (u64, u32)>,
}

impl Model {
    fn step(&mut self, m: &Message) {
        let key = (m.device_id, m.buffer_id);
        match Type::from_byte(m.kind).unwrap() {
            Type::Alloc => match self.buffers.get_mut(&key) {
                Some((_, size, refs)) if *size == m.size => *refs += 1,
                _ => {
                    self.buffers.insert(key, (m.buffer_type, m.size, 1));
                }
            },
            Type::Free => {
                if let Some((_, _, refs)) = self.buffers.get_mut(&key) {
                    *refs -= 1;
                    if *refs == 0 {
                        self.buffers.remove(&key);
                    }
                }
            }
            Type::KernelLoad => match self.kernels.get_mut(&key) {
                Some((size, refs)) if *size == m.size => *refs += 1,
                _ => {
                    self.kernels.insert(key, (m.size, 1));
                }
            },
            Type::KernelUnload => {
                if let Some((_, refs)) = self.kernels.get_mut(&key) {
                    *refs -= 1;
                    if *refs == 0 {
                        self.kernels.remove(&key);
                    }
                }
            }
            _ => {}
        }
    }
}

fn messages(connection: usize, stream: &Stream) -> Vec<Message> {
    let one = |&(what, device, id, size): &(u8, u8, u8, u8)| {
        let device = i32::from(device);
        // The buffer type follows from the id, so that an address is in one space only.
        let (buffer_type, id) =
            ([DRAM, L1, L1_SMALL, TRACE][usize::from(id)], (connection as u64) << 16 | u64::from(id));
        let size = u64::from(size) * 100;
        match what {
            0 | 1 => message(Type::Alloc, device, buffer_type, id, size),
            2 => message(Type::Free, device, 0, id, 0),
            3 => message(Type::KernelLoad, device, 0, id, size),
            4 => message(Type::KernelUnload, device, 0, id, size),
            // A query whose answer is read later.
            _ => message(Type::Query, device, 0, 0, 0),
        }
    };
    stream.steps.iter().map(one).collect()
}

#[test]
fn interleaved_streams_equal_a_simple_model() {
    let mut runner = TestRunner::new(Config { cases: 48, failure_persistence: None, ..Config::default() });
    runner
        .run(&streams(), |streams| {
            let server = Server::start(exe(), &["--sim", "t3k", "--quiet"]);
            let mut model = Model::default();
            let mut lanes = Vec::new();
            for (n, stream) in streams.iter().enumerate() {
                let mut buffer = [0; MAX_SIZE];
                let mut bytes = Vec::new();
                let all = messages(n, stream);
                for message in &all {
                    bytes.extend_from_slice(message.encode(stream.vintage, &mut buffer));
                    model.step(message);
                }
                let mut cuts: Vec<usize> = stream.cuts.iter().copied().filter(|&c| c < bytes.len()).collect();
                cuts.sort_unstable();
                cuts.push(bytes.len());
                let questions = all.iter().filter(|m| m.kind == Type::Query as u8).count();
                lanes.push((Client::connect(&server, stream.vintage), bytes, cuts, 0usize, questions));
            }
            // Connections take turns in sending their next part.
            while lanes.iter().any(|lane| !lane.2.is_empty()) {
                for (client, bytes, cuts, sent, _) in lanes.iter_mut().filter(|lane| !lane.2.is_empty()) {
                    let to = cuts.remove(0);
                    client.stream.write_all(&bytes[*sent..to]).unwrap();
                    *sent = to;
                }
            }
            for (client, _, _, _, questions) in &mut lanes {
                for _ in 0..*questions {
                    prop_assert_eq!(client.answer().kind, Type::Response as u8);
                }
                client.sync();
            }
            for device in 0..3 {
                let expected = |kind: u8| {
                    model
                        .buffers
                        .iter()
                        .filter(|((d, _), (t, ..))| *d == device && *t == kind)
                        .map(|(_, v)| v.1)
                        .sum::<u64>()
                };
                let kernel: u64 =
                    model.kernels.iter().filter(|((d, _), _)| *d == device).map(|(_, v)| v.0).sum();
                let levels = Client::connect(&server, Vintage::V144).query(device).levels;
                prop_assert_eq!(
                    (levels.dram, levels.l1, levels.l1_small, levels.trace, levels.kernel),
                    (expected(DRAM), expected(L1), expected(L1_SMALL), expected(TRACE), kernel)
                );
            }
            prop_assert_eq!(server.allocations().len(), model.buffers.len() + model.kernels.len());
            prop_assert_eq!(server.warnings(), "");
            Ok(())
        })
        .unwrap();
}

#[test]
fn messages_can_be_written_byte_by_byte() {
    let server = server();
    for vintage in Vintage::ALL {
        let mut client = Client::connect(&server, vintage);
        let mut buffer = [0; MAX_SIZE];
        for n in 0..4 {
            let bytes = message(Type::Alloc, 0, DRAM, n, 1000).encode(vintage, &mut buffer).to_vec();
            for byte in bytes {
                client.stream.write_all(&[byte]).unwrap();
            }
        }
        assert_eq!(client.query(0).levels.dram, 4000, "{vintage:?}");
        for n in 0..4 {
            client.free(0, n);
        }
        client.sync();
    }
    // The first byte of a kernel load is a newline.
    let mut client = Client::connect(&server, Vintage::V144);
    let mut buffer = [0; MAX_SIZE];
    let load = message(Type::KernelLoad, 0, 0, 1, 512).encode(Vintage::V144, &mut buffer).to_vec();
    client.stream.write_all(&load[..1]).unwrap();
    client.stream.write_all(&load[1..]).unwrap();
    assert_eq!(client.query(0).levels.kernel, 512);
    assert_eq!(server.warnings(), "");
}
