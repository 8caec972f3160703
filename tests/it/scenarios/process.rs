//! A kit process: something that can be killed, frozen and asked to end.

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use composer_tests::kit::Setup;

use crate::support::eventually;

/// A running process; killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    out: Option<BufReader<ChildStdout>>,
}

impl Process {
    pub(crate) fn spawn(setup: &Setup) -> Self {
        let setup = serde_json::to_string(setup).expect("a setup is JSON");
        let log = std::env::var_os("KIT_LOG").is_some();
        let mut child = Command::new(env!("CARGO_BIN_EXE_kit"))
            .arg(setup)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(if log { Stdio::inherit() } else { Stdio::null() })
            .spawn()
            .expect("the kit can be run");
        let out = child.stdout.take().map(BufReader::new);
        Self { child, out }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints.
    pub(crate) async fn line(&mut self) -> String {
        let mut out = self.out.take().expect("one reader at a time");
        let (out, line) = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            out.read_line(&mut line).expect("a pipe can be read");
            (out, line)
        })
        .await
        .expect("reading does not panic");
        self.out = Some(out);
        assert!(!line.is_empty(), "the process ended without a line");
        line.trim_end().to_owned()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("our own child can be waited for");
    }

    /// SIGKILL; what it had printed by then and nobody has read.
    pub(crate) async fn killed(&mut self) -> Vec<String> {
        self.kill();
        let out = self.out.take().expect("one reader at a time");
        let lines = tokio::task::spawn_blocking(move || out.lines().collect::<Result<Vec<_>, _>>());
        lines.await.expect("reading does not panic").expect("a pipe can be read")
    }

    /// A signal by its name: `STOP`, `CONT`, `TERM`, `INT`.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.id().to_string()).status();
        assert!(status.expect("`kill` can be run").success(), "SIG{name} to our own child");
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let id = self.id();
        let child = tokio::sync::Mutex::new(&mut self.child);
        eventually(&format!("process {id} ends"), async || {
            child.lock().await.try_wait().expect("our own child can be waited for")
        })
        .await
    }

    /// Waits until it has ended, or there is no reason to wait for that any more.
    pub(crate) async fn ended_or<F: Future<Output = bool>>(&mut self, mut over: impl FnMut() -> F) {
        let began = Instant::now();
        while self.is_running() && !over().await {
            assert!(began.elapsed() < Duration::from_secs(20), "process {} lives on", self.id());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("our own child can be waited for").is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
