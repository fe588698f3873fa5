//! How a process is named in findings and events.

use crate::input::Process;
use crate::printable::is_unprintable;
use crate::state::visible;
use crate::words::ProcessId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A process as findings and events name it, also after it exited.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Label {
    pub(crate) pid: Option<u32>,
    pub(crate) name: Option<String>,
    pub(crate) command: Option<String>,
    /// Number of its user.
    pub(crate) owner: Option<u32>,
}

impl Label {
    pub(crate) fn new(id: ProcessId, info: &Process) -> Self {
        Self { pid: visible(id), name: info.name.clone(), command: info.command.clone(), owner: info.uid }
    }

    /// A process of which only the id is known.
    pub(crate) fn unknown(id: ProcessId) -> Self {
        Self { pid: visible(id), name: None, command: None, owner: None }
    }

    /// This label for viewers that may not see the command line.
    pub(crate) fn without_command(&self) -> Self {
        Self { command: None, ..self.clone() }
    }

    fn title(&self) -> Option<String> {
        program_and_script(self.name.as_deref(), self.command.as_deref())
    }
}

/// `python model.py` of `/usr/bin/python -u ./model.py --layers 3`, else the process name. A script says more than `python`, but
/// paths and options are too long for a sentence, and other users may not see arguments.
pub(crate) fn program_and_script(name: Option<&str>, command: Option<&str>) -> Option<String> {
    let mut words = command.unwrap_or_default().split_whitespace();
    let name = name.or(words.next().map(base_name))?;
    // After `-c` and `-m`, the next word is no path.
    let is_path_next =
        |word: &&str| word.starts_with("--") || !word.starts_with('-') || !word.contains(['c', 'm']);
    let script = words
        .take_while(is_path_next)
        .find(|word| !word.starts_with('-'))
        .map(base_name)
        .filter(|it| name.starts_with("python") && it.strip_suffix(".py").is_some());
    // Any process may have any name; this is one line.
    let clean =
        |text: &str| text.chars().map(|c| if is_unprintable(c) { '?' } else { c }).collect::<String>();
    Some(match script {
        Some(script) => format!("{} {}", clean(name), clean(script)),
        None => clean(name),
    })
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, self.title()) {
            (Some(pid), Some(title)) => write!(f, "pid {pid} ({title})"),
            (Some(pid), None) => write!(f, "pid {pid}"),
            (None, Some(title)) => write!(f, "{title} (outside this PID namespace)"),
            (None, None) => f.write_str("a process outside this PID namespace"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_pid_name_and_script() {
        let label = |pid: u32, name: Option<&str>, command: Option<&str>| {
            let info = Process {
                name: name.map(str::to_owned),
                command: command.map(str::to_owned),
                ..Process::default()
            };
            Label::new(ProcessId { pid, start: 1 }, &info).to_string()
        };
        let python = Some("python3");
        assert_eq!(
            label(7, python, Some("/usr/bin/python3 -u ./src/model.py -n 3")),
            "pid 7 (python3 model.py)"
        );
        assert_eq!(label(7, python, Some("python3 -m pytest")), "pid 7 (python3)");
        // Words after these options are code or modules, even if they end as a script does.
        assert_eq!(label(7, python, Some("python3 -uc import key.py")), "pid 7 (python3)");
        assert_eq!(label(7, python, None), "pid 7 (python3)");
        assert_eq!(label(7, Some("a\x1bb"), Some("a b.py")), "pid 7 (a?b)");
        assert_eq!(label(7, None, Some("bin/python model.py")), "pid 7 (python model.py)");
        assert_eq!(label(7, None, None), "pid 7");
        assert_eq!(label(0, Some("server"), None), "server (outside this PID namespace)");
        assert_eq!(label(0, None, None), "a process outside this PID namespace");
    }
}
