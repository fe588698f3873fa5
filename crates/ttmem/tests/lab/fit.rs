//! What `ttmem fit` answers is what the runtime's allocators do. Stock ttnn goes to random states of its allocators and makes
//! requests in each: the answers are the same, and so are the addresses. If a request does not fit, what ttmem says to free makes
//! room.
//!
//! `cargo xtask fit` runs it with the release program. `TTMEM_FIT_STATES` is the number of states of each board (default 60),
//! `TTMEM_FIT_SEED` the seed of the first (default 1).

use super::drift::{Workload, number};
use super::{TTNN, agent, board_variable, here, program, python};
use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use ttmem_core::detail::{BlockQuery, BufferQuery};
use ttmem_core::snapshot::BlockMap;
use ttmem_core::words::{Arch, Space};
use ttmem_core::{Detail, End, FitAnswer, FitContext, FitRequest, FitSize, fit};
use ttmem_testkit::{Reader, memory_folder};
use ttmem_types::{DataType, Pages, Tensor, TensorLayout};

/// A request of this kind is also made of the program in one of so many states.
const PROGRAM_EVERY: u64 = 10;

#[test]
fn n150() -> anyhow::Result<()> {
    check("n150", "1x1", Arch::WormholeB0, false, 0)
}

#[test]
fn p150() -> anyhow::Result<()> {
    check("p150", "1x1", Arch::Blackhole, false, 1)
}

#[test]
fn t3k() -> anyhow::Result<()> {
    check("t3k", "2x4", Arch::WormholeB0, false, 2)
}

#[test]
fn n300_hybrid() -> anyhow::Result<()> {
    check("n300", "1x2", Arch::WormholeB0, true, 3)
}

#[test]
fn p150_hybrid() -> anyhow::Result<()> {
    check("p150", "1x1", Arch::Blackhole, true, 4)
}

/// A request of ttnn, and the runtime's answer.
#[derive(Debug, Deserialize)]
struct Made {
    space: Space,
    shape: Vec<u32>,
    data_type: String,
    layout: String,
    shard: Option<Vec<u32>>,
    other_direction: bool,
    /// An address, `null`: out of memory, or a text: refused for another reason.
    address: Value,
}

impl Made {
    fn tensor(&self, shape: &[u32]) -> Tensor {
        let data_type = DataType::from_name(&self.data_type).expect("a data type");
        let layout = TensorLayout::from_name(&self.layout).expect("a layout");
        Tensor::new(shape).data_type(data_type).layout(layout)
    }

    fn request(&self) -> FitRequest {
        let shape = self.shard.as_ref().unwrap_or(&self.shape);
        let Pages { bytes, count } = self.tensor(shape).pages().expect("pages");
        let size = if self.shard.is_some() {
            FitSize::Shard { bytes, count }
        } else {
            FitSize::Pages { bytes, count }
        };
        let other = match End::of(self.space) {
            End::Bottom => End::Top,
            End::Top => End::Bottom,
        };
        FitRequest { size, from: self.other_direction.then_some(other), count: 1 }
    }

    /// The arguments of `ttmem fit` for this request.
    fn arguments(&self) -> Vec<String> {
        let text = |words: &[&str]| words.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        let shape = |it: &[u32]| it.iter().map(u32::to_string).collect::<Vec<_>>().join("x");
        let space = self.space.name();
        let tensor = |it: &[u32]| format!("--tensor={}:{}:{}", shape(it), self.data_type, self.layout);
        let mut words = match &self.shard {
            Some(shard) if self.space == Space::L1Small => {
                let Pages { bytes, count } = self.tensor(shard).pages().expect("pages");
                text(&["--l1-small", &format!("{}B/core", bytes.next_multiple_of(16) * count)])
            }
            Some(shard) => text(&[&tensor(shard), "--memory", space, "--sharded", "1x1"]),
            None => text(&[&tensor(&self.shape), "--memory", space]),
        };
        if self.other_direction {
            let is_bottom = End::of(self.space) == End::Bottom;
            words.extend(text(&["--from", if is_bottom { "top" } else { "bottom" }]));
        }
        words
    }
}

#[derive(Debug, Default)]
struct Counts {
    states: u64,
    equal_addresses: u64,
    equal_refusals: u64,
    /// Requests in the direction that is not that of their space.
    other_direction: u64,
    sharded: u64,
    rooms_made: u64,
    asked_of_program: u64,
    program_cannot_say: u64,
    states_with_single_cores: u64,
    /// Refused by the runtime for other reasons than memory.
    not_compared: u64,
}

/// The library that changes the direction of allocations, for one case.
fn direction_library(number_of_case: u64) -> anyhow::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = folder.join(format!("lab-direction-{}-{number_of_case}.so", std::process::id()));
    let mut command = Command::new("g++");
    command.args(["-std=c++20", "-O1", "-shared", "-fPIC", "-fexceptions", "-fno-threadsafe-statics"]);
    let built = command.arg("-o").arg(&library).arg(here().join("direction.cpp")).output()?;
    ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Ok(library)
}

fn check(board: &str, mesh: &str, arch: Arch, is_hybrid: bool, number_of_case: u64) -> anyhow::Result<()> {
    let states = number("TTMEM_FIT_STATES", 60)?;
    let seed = number("TTMEM_FIT_SEED", 1)? + number_of_case;
    let begun = Instant::now();
    let library = direction_library(number_of_case)?;
    let done = run(board, mesh, arch, is_hybrid, seed, states, &library);
    let done = done.with_context(|| format!("{board}, ttnn {TTNN}, seed {seed}"));
    std::fs::remove_file(library)?;
    let done = done?;
    println!("{board}: {done:?} ({:.0} s)", begun.elapsed().as_secs_f64());
    let Counts { equal_addresses, equal_refusals, rooms_made, .. } = done;
    ensure!(equal_addresses > states && equal_refusals > states / 10, "few requests were compared");
    ensure!(rooms_made > states / 100, "the advice was hardly tried");
    Ok(())
}

fn run(
    board: &str,
    mesh: &str,
    arch: Arch,
    is_hybrid: bool,
    seed: u64,
    states: u64,
    library: &Path,
) -> anyhow::Result<Counts> {
    let folder = memory_folder();
    let mut command = Command::new(program());
    command.env("TTMEM_AGENT", agent());
    command.args(["run", "--exec", "--shm-dir"]).arg(folder.path()).arg("--").arg(python(TTNN));
    command.arg(here().join("fit.py")).args([seed.to_string(), states.to_string()]).arg(mesh);
    let (name, value) = board_variable(board);
    command.env(name, value).env("TT_METAL_LOGGER_LEVEL", "FATAL").env_remove("TTMEM_LOG");
    if is_hybrid {
        command.arg("hybrid").env("TT_METAL_ALLOCATOR_MODE_HYBRID", "1");
    }
    // `ttmem run` puts the agent before it.
    command.env("LD_PRELOAD", library).env("TTMEM_LAB_DIRECTION", library);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let mut workload = Workload::start(&mut command)?;
    let mut reader = Reader::new(folder.path());
    let mut done = Counts::default();
    let mut is_room_expected = false;
    loop {
        let line = workload.next()?.context("the workload ended")?;
        if is_room_expected {
            let address = &line["retried"]["address"];
            ensure!(address.is_u64(), "freed what makes room, but the request got {}", line["retried"]);
            done.rooms_made += 1;
        }
        if line["what"] == "closed" {
            workload.finish()?;
            return Ok(done);
        }
        reader.poll();
        let query = BlockQuery { limit: u32::MAX, ..BlockQuery::default() };
        let on_cores =
            BufferQuery { space: Some(Space::L1Core), limit: BufferQuery::MOST, ..BufferQuery::default() };
        let detail = Detail { blocks: Some(query), buffers: Some(on_cores), ..Detail::NONE };
        let snapshot = reader.snapshot(&detail);
        let maps = snapshot.block_maps.unwrap_or_default();
        let on_cores = snapshot.buffers.context("a list of buffers")?;
        ensure!(on_cores.count == on_cores.list.len() as u64, "the list of buffers is not complete");
        let single_core = on_cores.list.iter().map(|it| Some((address_of(&it.id), it.bytes_per_bank?)));
        let single_core = single_core.collect::<Option<Vec<_>>>().context("sizes on cores are known")?;
        done.states_with_single_cores += u64::from(!single_core.is_empty());
        let context =
            FitContext { arch: Some(arch), is_hybrid: Some(is_hybrid), single_core, ..FitContext::default() };
        let requests: Vec<Made> = serde_json::from_value(line["requests"].clone())?;
        let mut reply = json!({ "free": [], "request": 0 });
        for (number, made) in requests.iter().enumerate() {
            let step = || format!("state {}, request {number}: {made:?}", done.states);
            let step = step();
            let map = map_of_mesh(&maps, made.space).with_context(|| step.clone())?;
            let freed = compare(made, map, &context, &mut done).with_context(|| step.clone())?;
            if let Some(freed) = freed.filter(|_| reply["free"].as_array().is_some_and(Vec::is_empty)) {
                reply = json!({ "free": freed, "request": number });
            }
            if done.states % PROGRAM_EVERY == 0 && number == 0 && !made.address.is_string() {
                let is_answered = compare_program(made, map.allocator, folder.path()).context(step)?;
                done.asked_of_program += 1;
                done.program_cannot_say += u64::from(!is_answered);
            }
        }
        is_room_expected = reply["free"].as_array().is_some_and(|it| !it.is_empty());
        workload.reply(&reply.to_string())?;
        done.states += 1;
    }
}

fn address_of(id: &str) -> u64 {
    u64::from_str_radix(id.trim_start_matches("0x"), 16).expect("an address")
}

/// The map of the mesh's allocator, which is the first; in HYBRID mode each device has one, too.
fn map_of_mesh(maps: &[BlockMap], space: Space) -> anyhow::Result<&BlockMap> {
    // The device may have been closed and opened again.
    let found = maps.iter().filter(|it| it.space == space).min_by_key(|it| it.allocator);
    found.with_context(|| format!("no allocator of {space}"))
}

/// Compares ttmem's answer with the runtime's. Returns the addresses of tensors to free, if the request does not fit and only
/// tensors are in the way.
fn compare(
    made: &Made,
    map: &BlockMap,
    context: &FitContext,
    done: &mut Counts,
) -> anyhow::Result<Option<Vec<u64>>> {
    if let Some(reason) = made.address.as_str() {
        done.not_compared += 1;
        ensure!(!reason.contains("emory"), "refused: {reason}");
        return Ok(None);
    }
    done.other_direction += u64::from(made.other_direction);
    done.sharded += u64::from(made.shard.is_some());
    let found = fit(map, &made.request(), context);
    match (&found.answer, made.address.as_u64()) {
        (FitAnswer::Fits { addresses, .. }, Some(address)) if addresses[..] == [address] => {
            done.equal_addresses += 1;
            Ok(None)
        }
        (FitAnswer::DoesNotFit { make_room, .. }, None) => {
            done.equal_refusals += 1;
            let Some(room) = make_room else { return Ok(None) };
            let is_tensor = |it: &ttmem_core::snapshot::Allocation| it.origin.tensor.is_some();
            let are_tensors = room.count == room.buffers.len() as u64 && room.buffers.iter().all(is_tensor);
            Ok(are_tensors.then(|| room.buffers.iter().map(|it| address_of(&it.id)).collect()))
        }
        _ => bail!("ttmem says {:x?}", found.answer),
    }
}

/// Compares the answer of the program with the runtime's; false if it cannot say because the mode of the allocator is not known yet.
fn compare_program(made: &Made, allocator: Option<u32>, folder: &Path) -> anyhow::Result<bool> {
    let arguments = made.arguments();
    let mut command = Command::new(program());
    command.arg("fit").args(&arguments).args(["--json", "--local", "--shm-dir"]).arg(folder);
    command.args(allocator.map(|number| format!("--allocator={number}")));
    let output = command.output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let answer: Value = serde_json::from_slice(&output.stdout).with_context(|| errors.into_owned())?;
    if answer["answer"] == "unknown" {
        let reason = answer["reason"].as_str().context("a reason")?;
        ensure!(reason.contains("HYBRID") && output.status.code() == Some(3), "{reason}");
        return Ok(false);
    }
    let expected = match made.address.as_u64() {
        Some(address) => answer["answer"] == "fits" && answer["addresses"] == json!([address]),
        None => answer["answer"] == "does_not_fit",
    };
    ensure!(expected, "ttmem fit {}: {answer}", arguments.join(" "));
    ensure!(output.status.code() == Some(i32::from(made.address.is_null())), "{}", output.status);
    Ok(true)
}
