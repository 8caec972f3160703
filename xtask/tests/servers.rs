//! The promise of private servers: they end with the command, however it ends.
//!
//! Needs PostgreSQL on the machine, so it runs where `cargo xtask test` has found one.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The command under test, which says where its server is and what its own process id is, and then does not end.
struct Running {
    xtask: Child,
    port: u16,
    shell: u32,
}

impl Running {
    fn start() -> Option<Self> {
        if std::env::var_os("COMPOSER_TEST_POSTGRES").is_none() {
            eprintln!("skipped: run it with `cargo xtask test`");
            return None;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(["with", "sh", "-c", "echo $COMPOSER_TEST_POSTGRES $$; sleep 600; echo never"]);
        let mut xtask = command.stdout(Stdio::piped()).spawn().expect("the command starts");
        let mut line = String::new();
        let stdout = xtask.stdout.take().expect("asked for a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it prints a line");
        let (url, shell) = line.trim_end().split_once(' ').expect("two words");
        let port = url.rsplit(':').next().and_then(|end| end.split('/').next()).expect("a port");
        Some(Self { xtask, port: port.parse().expect("a number"), shell: shell.parse().expect("a number") })
    }

    fn server_answers(&self) -> bool {
        std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok()
    }

    /// The server's data folder, as its command line names it.
    fn data_folder(&self) -> PathBuf {
        let ps = Command::new("ps").args(["-A", "-ww", "-o", "args"]).output().expect("ps starts");
        let ps = String::from_utf8_lossy(&ps.stdout).into_owned();
        let port = format!("--port={}", self.port);
        let server = ps.lines().find(|line| line.contains(" -D ") && line.contains(&port)).expect("it runs");
        server.split_whitespace().skip_while(|word| *word != "-D").nth(1).expect("a folder").into()
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args(["-s", signal, &self.xtask.id().to_string()]).status();
        assert!(status.expect("kill starts").success());
    }
}

/// Whatever a failed test leaves behind.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.xtask.kill();
        let _ = self.xtask.wait();
        let mut kill = Command::new("kill");
        kill.args(["-s", "KILL", "--", &format!("-{}", self.shell)]).stderr(Stdio::null());
        let _ = kill.status();
    }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < patience, "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn nothing_is_left_after(signal: &str) {
    let Some(mut running) = Running::start() else { return };
    let data = running.data_folder();
    assert!(running.server_answers() && data.exists());
    running.signal(signal);
    wait_until("the command ends", || running.xtask.try_wait().expect("it is ours").is_some());
    wait_until("the server ends", || !running.server_answers());
    wait_until("its folder is removed", || !data.parent().expect("the server's folder").exists());
    wait_until("the command ends with it", || !is_alive(running.shell));
}

fn is_alive(process: u32) -> bool {
    let mut kill = Command::new("kill");
    kill.args(["-s", "0", &process.to_string()]).stderr(Stdio::null());
    kill.status().expect("kill starts").success()
}

/// Not `INT`: whoever is started in the background by a shell ignores it, and so would the command.
#[test]
fn nothing_is_left_after_an_interruption() {
    nothing_is_left_after("TERM");
}

#[test]
fn nothing_is_left_after_kill_9() {
    nothing_is_left_after("KILL");
}
