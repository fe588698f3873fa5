//! Processes that a test starts and controls, one request at a time.
//!
//! A helper is the test binary itself, started again with [`ROLE`] set; there the test [`TEST`] calls [`run_if_asked`],
//! which reads requests from standard input and writes a reply for each to standard output, as lines of JSON. It is not a
//! binary of this crate because Cargo builds and names for a test only the binaries of the test's own package: another
//! package's would need a nested build. The helper writes nothing to standard error itself, so that a test can see what the
//! library in it prints.

use crate::{producer, puppet};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Debug;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// The environment variable that makes a test binary a helper.
pub const ROLE: &str = "TTMEM_TEST_HELPER";
/// Name of the test that calls [`run_if_asked`].
pub const TEST: &str = "helper";

/// A kind of helper; as JSON, the value of [`ROLE`].
#[derive(Debug, Serialize, Deserialize)]
pub enum Role {
    /// A [`crate::puppet::Puppet`].
    Puppet {
        /// The server's legacy socket.
        socket: PathBuf,
    },
    /// A [`crate::producer::Producer`].
    Producer,
}

impl Role {
    /// The value of [`ROLE`].
    pub fn to_env(&self) -> String {
        serde_json::to_string(self).unwrap()
    }
}

/// Options that make a test binary run only [`TEST`], and print only whole lines before the replies.
pub const OPTIONS: [&str; 5] = ["--exact", TEST, "--nocapture", "--test-threads=1", "--quiet"];

/// A helper's reply: a value, or the error with which a library refused the request.
pub(crate) type Reply = Result<Value, String>;

/// A helper process.
pub(crate) struct Helper {
    child: Child,
    requests: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts a test binary as a helper, through another program if `through` names one with its arguments.
    pub(crate) fn start(exe: &Path, through: &[&str], role: &Role, env: &[(&str, &str)]) -> Self {
        let mut command = match through {
            [] => Command::new(exe),
            [program, args @ ..] => {
                let mut command = Command::new(program);
                command.args(args).arg(exe);
                command
            }
        };
        let mut child = command
            .args(OPTIONS)
            .env(ROLE, role.to_env())
            .env("TTMEM", "1")
            .env_remove("TTMEM_SHM_DIR")
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let requests = child.stdin.take();
        let replies = BufReader::new(child.stdout.take().unwrap());
        Self { child, requests, replies }
    }

    /// Pid of the process that was started: the helper's, unless it was started through a program that forks.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a request and waits for its reply, which must not be a refusal.
    pub(crate) fn call<T: DeserializeOwned>(&mut self, request: &(impl Serialize + Debug)) -> T {
        self.attempt(request).unwrap_or_else(|error| panic!("{request:?} was refused: {error}"))
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn attempt<T: DeserializeOwned>(
        &mut self,
        request: &(impl Serialize + Debug),
    ) -> Result<T, String> {
        let text = serde_json::to_string(request).unwrap();
        writeln!(self.requests.as_mut().unwrap(), "{text}").unwrap();
        loop {
            let mut line = String::new();
            let len = self.replies.read_line(&mut line).unwrap();
            assert!(len > 0, "the helper died of {request:?}: {}", self.errors());
            // The test harness prints its own lines first.
            if line.starts_with('{') {
                let reply: Reply = serde_json::from_str(&line).unwrap();
                return reply.map(|value| serde_json::from_value(value).unwrap());
            }
        }
    }

    /// Waits until the process exits.
    pub(crate) fn wait(&mut self) {
        let _ = self.child.wait();
    }

    /// Kills the process with SIGKILL, and waits until it is reaped.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Closes the process's standard input, which makes it exit; returns its exit status and standard error.
    pub(crate) fn quit(&mut self) -> (ExitStatus, String) {
        self.requests = None;
        let mut rest = String::new();
        let _ = self.replies.read_to_string(&mut rest);
        let errors = self.errors();
        (self.child.wait().unwrap(), errors)
    }

    fn errors(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut text);
        }
        text
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Executes requests, in the helper process.
pub(crate) trait Execute {
    type Request: DeserializeOwned;

    fn execute(&mut self, request: Self::Request) -> Reply;
}

/// Runs as a helper if this process was started as one, and then does not return.
pub fn run_if_asked() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match serde_json::from_str(&role).unwrap() {
        Role::Puppet { socket } => run(puppet::Process::new(socket)),
        Role::Producer => run(producer::Process::new()),
    }
}

#[allow(unsafe_code)]
fn run(mut process: impl Execute) -> ! {
    let mut requests = std::io::stdin().lock();
    loop {
        let mut line = String::new();
        if requests.read_line(&mut line).unwrap() == 0 {
            // SAFETY: skips destructors and exit handlers, as workloads may.
            unsafe { libc::_exit(0) };
        }
        let reply = process.execute(serde_json::from_str(&line).unwrap());
        send(&reply);
    }
}

/// Sends a reply in one write, so that no part of it is buffered when the process forks or is killed.
pub(crate) fn send(reply: &Reply) {
    let line = serde_json::to_string(reply).unwrap() + "\n";
    rustix::io::write(rustix::stdio::stdout(), line.as_bytes()).unwrap();
}

/// Kills a child of a helper, and waits until it is reaped.
#[allow(unsafe_code)]
pub(crate) fn reap(pid: i32) {
    // SAFETY: both calls take numbers only.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

/// Converts a library's result to a reply.
pub(crate) fn reply<T: Serialize, E: Debug>(result: Result<T, E>) -> Reply {
    match result {
        Ok(value) => Ok(serde_json::to_value(value).unwrap()),
        Err(error) => Err(format!("{error:?}")),
    }
}

/// Declares the requests of a kind of helper: the enum that is sent, the functions that tests call, and the dispatch to
/// functions of the same names in the process. All three are generated from one list, so the compiler checks both ends.
macro_rules! requests {
    ($caller:ident, $process:ident {
        $($(#[doc = $doc:literal])+ $variant:ident: $name:ident($($field:ident: $type:ty),*) -> $reply:ty;)+
    }) => {
        /// A request to the process.
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        #[allow(missing_docs, reason = "the fields are named, and described with their request")]
        pub enum Request {
            $($(#[doc = $doc])+ $variant { $($field: $type),* },)+
        }

        impl $caller {
            $($(#[doc = $doc])+
            pub fn $name(&mut self, $($field: $type),*) -> $reply {
                self.helper.call(&Request::$variant { $($field),* })
            })+
        }

        impl crate::helper::Execute for $process {
            type Request = Request;

            fn execute(&mut self, request: Request) -> crate::helper::Reply {
                match request {
                    $(Request::$variant { $($field),* } => crate::helper::reply(self.$name($($field),*)),)+
                }
            }
        }
    };
}
pub(crate) use requests;
