//! `ttmem flame`: buffers by the calls that allocated them, as collapsed stacks or for speedscope.

use crate::cli::{FlameArgs, FlameFormat, Sockets};
use crate::listing::describe_unlisted;
use crate::source::{answer_or_report, open_source};
use crate::{Exit, print, show};
use anyhow::Context as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use ttmem_core::Detail;
use ttmem_core::snapshot::{Flame, FlameMoment};
use ttmem_reader::Reader;
use ttmem_render::flame::{FlameNode, FlameTree, describe_gaps, space_name, spaces};
use ttmem_render::format::sanitize;

pub(crate) fn run(args: &FlameArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let mut source = match &args.segment {
        Some(file) => Reader::of_segment(file)?,
        None => open_source(sockets, false, false)?,
    };
    let detail = Detail { flame: Some(args.moment()), ..Detail::NONE };
    let Some(snapshot) = answer_or_report(source.snapshot(&detail))? else { return Ok(Exit::NoDaemon) };
    let mut snapshot = show::apply_filter(snapshot, &args.filter)?;
    if let Some(note) = describe_unlisted(&snapshot) {
        let _ = writeln!(io::stderr(), "ttmem: {note}");
    }
    let flame = snapshot.flame.take().context("the daemon is older than this ttmem: it sent no flame")?;
    let is_selected = |index| snapshot.devices.iter().any(|device| device.index == index);
    let mut trees = trees(&flame, is_selected);
    let gaps: Vec<_> = trees.iter().flat_map(|tree| tree.gaps.iter().copied()).collect();
    for note in describe_gaps(&gaps) {
        let _ = writeln!(io::stderr(), "ttmem: {note}");
    }
    trees.retain(|tree| tree.nodes.len() > 1);
    if trees.is_empty() {
        let _ = writeln!(io::stderr(), "ttmem: {}", describe_absence(flame.moment));
        return Ok(Exit::NothingFound);
    }
    let text = match args.format() {
        FlameFormat::Collapsed => collapsed(&trees),
        FlameFormat::Speedscope => format!("{}\n", speedscope(&trees)),
    };
    let Some(path) = &args.output else { return print(text.as_bytes()) };
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Exit::Done)
}

fn trees(flame: &Flame, is_selected: impl Fn(u32) -> bool) -> Vec<FlameTree<'_>> {
    let spaces = spaces(flame, &is_selected).into_iter();
    spaces.map(|(space, _)| FlameTree::new(flame, space, &is_selected)).collect()
}

fn describe_absence(moment: FlameMoment) -> &'static str {
    match moment {
        FlameMoment::Live => "no buffers are allocated; start programs with `ttmem run -- CMD`",
        FlameMoment::Peak => "no process has allocated a buffer; start programs with `ttmem run -- CMD`",
        FlameMoment::Mark => "no live buffers were allocated since a mark",
    }
}

/// The nodes that have buffers of their own, each with the nodes from the process to it.
fn stacks<'t>(tree: &'t FlameTree<'_>) -> impl Iterator<Item = (Vec<&'t FlameNode<'t>>, u64)> {
    let own = tree.below(0).into_iter().filter(|&at| tree.nodes[at].has_own);
    own.map(|at| (tree.path(at).into_iter().map(|at| &tree.nodes[at]).collect(), tree.nodes[at].own_bytes))
}

/// One line for each stack: frames, outermost first, and bytes. The space is the first frame.
fn collapsed(trees: &[FlameTree<'_>]) -> String {
    let mut text = String::new();
    for tree in trees {
        for (nodes, bytes) in stacks(tree) {
            text.push_str(space_name(tree.space));
            for node in nodes {
                // These separate frames and lines.
                let _ = write!(text, ";{}", sanitize(&node.name).replace(';', ","));
            }
            let _ = writeln!(text, " {bytes}");
        }
    }
    text
}

/// The file format of speedscope: a profile for each space.
fn speedscope(trees: &[FlameTree<'_>]) -> Value {
    let mut numbers = BTreeMap::new();
    let mut frames = Vec::new();
    let mut profiles = Vec::new();
    for tree in trees {
        let (mut samples, mut weights) = (Vec::new(), Vec::new());
        for (nodes, bytes) in stacks(tree) {
            let numbered = nodes.into_iter().map(|node| {
                *numbers.entry(node.key()).or_insert_with(|| {
                    frames.push(frame(node));
                    frames.len() - 1
                })
            });
            samples.push(numbered.collect::<Vec<usize>>());
            weights.push(bytes);
        }
        profiles.push(json!({
            "type": "sampled",
            "name": space_name(tree.space),
            "unit": "bytes",
            "startValue": 0,
            "endValue": tree.nodes[0].bytes,
            "samples": samples,
            "weights": weights,
        }));
    }
    json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": "device memory",
        "exporter": concat!("ttmem ", env!("CARGO_PKG_VERSION")),
        "shared": { "frames": frames },
        "profiles": profiles,
    })
}

fn frame(node: &FlameNode<'_>) -> Value {
    let mut described = json!({ "name": sanitize(&node.name) });
    if let Some((file, line)) = node.place() {
        described["file"] = json!(sanitize(file));
        if let Some(line) = line {
            described["line"] = json!(line);
        }
    }
    described
}
