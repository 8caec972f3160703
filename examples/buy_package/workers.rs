//! The worker processes: this program, started again with a hidden argument.
//!
//! A worker lives as long as the pipe to its stdin is open. Whatever ends its parent closes that pipe, so no worker
//! is left behind.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use composer_runtime::Composer;
use composer_sdk::prelude::*;
use tokio::sync::oneshot;

use crate::workflow::{Services, host};

/// The hidden argument; the URL of the services follows.
pub(crate) const ARGUMENT: &str = "--worker";

/// What a worker process does. It finds its database in `COMPOSER_URL`.
pub(crate) async fn work(services: String) -> Result<()> {
    let composer = Composer::connect_from_env().await?;
    let worker = host(composer.worker(), Services { url: services })
        // Modest, so that there is something to see; the defaults are 1,000 runs and 500 activities.
        .max_runs(20)
        .max_activities(4)
        .grace(Duration::from_secs(1))
        .start()
        .await?;
    stdin_closed().await;
    worker.shutdown().await?;
    Ok(())
}

/// Resolves when the parent lets go, or is no more.
async fn stdin_closed() {
    let (closed, parent) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        drop(closed);
    });
    let _ = parent.await;
}

/// A worker process, as its parent holds it. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    name: &'static str,
    child: Child,
}

impl WorkerProcess {
    /// Starts one on that database.
    pub(crate) fn start(name: &'static str, database: &str, services: &str) -> std::io::Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .args([ARGUMENT, services])
            .env("COMPOSER_URL", database)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { name, child })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL: it can neither clean up nor say goodbye. Returns when it is dead.
    pub(crate) fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Lets go of it, and waits until it has ended in good order.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(Error::new(format!("{} ended with {status}", self.name))),
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        Err(Error::new(format!("{} did not end when its work was done", self.name)))
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
